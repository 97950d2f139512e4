"""Network volumes: hold a folder of this machine, bill until they are deleted, and know nothing of who mounts them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulators.ledger import HOUR, MONTH, RentalLedger
from tests.simulators.runpod.catalog import network_rate


@dataclass
class Volume:
    """One network volume; `folder` is its content, None when the simulator keeps none."""

    id: str
    account: str
    name: str
    size: int
    center: str
    type: str
    folder: Path | None

    def outline(self) -> dict[str, Any]:
        """As the API shows it."""
        return {"id": self.id, "name": self.name, "size": self.size, "dataCenter": self.center, "type": self.type}


class Volumes:
    """All network volumes of all accounts."""

    def __init__(self, ledger: RentalLedger, root: Path | None) -> None:
        self._ledger, self._root = ledger, root
        self._made = 0
        self.all: dict[str, Volume] = {}

    def create(self, account: str, name: str, size: int, center: str, kind: str) -> Volume:
        """A new, empty one."""
        self._made += 1
        id = f"nv{self._made:06d}"
        folder = self._root / id if self._root else None
        if folder:
            folder.mkdir(parents=True)
        volume = self.all[id] = Volume(id, account, name, size, center, kind, folder)
        self._ledger.begin(id, account=account, tag=name, kind="volume", state="kept", rate=self._rate(volume))
        return volume

    def grow(self, volume: Volume, size: int) -> None:
        """More room."""
        volume.size = size
        self._ledger.turn(volume.id, "kept", self._rate(volume))

    def delete(self, volume: Volume) -> None:
        """Its content is lost."""
        del self.all[volume.id]
        self._ledger.end(volume.id)
        if volume.folder:
            shutil.rmtree(volume.folder, ignore_errors=True)

    def of(self, account: str) -> list[Volume]:
        """An account's volumes."""
        return [volume for volume in self.all.values() if volume.account == account]

    def _rate(self, volume: Volume) -> float:
        return network_rate(volume.size, volume.type) * HOUR / MONTH
