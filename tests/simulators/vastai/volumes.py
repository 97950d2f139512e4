"""Volumes of the simulated vast.ai: disk on one machine, of a fixed size, for one instance at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulators.vastai.market import Machine
from tests.simulators.vastai.meter import HOURS_A_MONTH, Meter
from tests.simulators.vastai.query import Row
from tests.simulators.vastai.replies import invalid_args, refusal
from tests.simulators.vastai.requests import RentVolume, VolumeInfo

if TYPE_CHECKING:
    from tests.simulators.vastai.contracts import Contracts
    from tests.simulators.vastai.settings import VastAccount

NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


@dataclass
class Volume:
    id: int
    account: str
    machine: Machine
    size: float
    name: str
    started: float
    meter: Meter = field(default_factory=Meter)
    gone: bool = False

    @property
    def rate(self) -> float:
        return self.size * self.machine.storage_cost / HOURS_A_MONTH


class Volumes:
    """All of them. They bill from their creation to their deletion, whatever becomes of instances."""

    def __init__(self, world: Contracts) -> None:
        self._world = world
        self.all: dict[int, Volume] = {}

    def own(self, account: VastAccount) -> list[Volume]:
        return [v for v in self.all.values() if v.account == account.id and not v.gone]

    def users(self, volume: Volume) -> list[int]:
        """Instances that hold it: also destroyed ones, until it is released."""
        world = self._world
        late = world.now - world.settings.volume_release
        return [
            i.id
            for i in world.instances.values()
            if i.volume == volume.id and (i.destroyed_at is None or i.destroyed_at > late)
        ]

    def create(self, account: VastAccount, body: RentVolume) -> Volume:
        """PUT /volumes/"""
        if body.name is not None and not NAME.fullmatch(body.name):
            raise refusal(422, "invalid_args", f"name must match ^{NAME.pattern}$")
        machine = self._world.market.volume_offers.get(body.id)
        if machine is None:
            raise refusal(404, "no_such_ask", f"Volume offer {body.id} is not available.")
        if not 1 <= body.size <= machine.volume_space:
            raise invalid_args(f"size {body.size}, there are {machine.volume_space:g}")
        if self._world.ledger.balance(account) <= 0:
            raise refusal(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
        world = self._world
        volume = Volume(next(world.ids), account.id, machine, float(body.size), body.name or "", world.now)
        machine.volume_space -= volume.size
        self.all[volume.id] = volume
        volume.meter.set(world.now, {"disk": volume.rate})
        world.ledger.begin(
            str(volume.id), account=account.id, tag=volume.name, kind="volume", state="created", rate=volume.rate
        )
        return volume

    def for_instance(self, account: VastAccount, machine: Machine, info: VolumeInfo | None, ask: int) -> Volume | None:
        """The volume that a create wants to link; None: none, or a new one. Refuses what can't be, before anything."""
        if info is None:
            return None
        if not info.mount_path.startswith("/"):
            raise invalid_args(f"mount_path {info.mount_path}", ask_id=ask)
        if info.create_new:
            if self._world.market.volume_offers.get(info.volume_id) is not machine:
                raise invalid_args(f"volume offer {info.volume_id} is not on this machine", ask_id=ask)
            return None
        volume = self.all.get(info.volume_id)
        if volume is None or volume.gone or volume.account != account.id:
            raise refusal(404, "no_such_volume", "Volume with that ID does not exist.", ask_id=ask)
        if volume.machine is not machine:
            raise invalid_args(f"volume {volume.id} is on machine {volume.machine.id}", ask_id=ask)
        if self.users(volume):
            raise invalid_args(f"volume {volume.id} is in use", ask_id=ask)
        return volume

    def bind(self, account: VastAccount, machine: Machine, info: VolumeInfo, volume: Volume | None) -> int:
        """The id of the volume that the new instance has, made now where it asked for that."""
        if volume is None:
            size = info.size if info.size is not None else 15
            volume = self.create(account, RentVolume(id=info.volume_id, size=size, name=info.name))
        assert volume.machine is machine
        return volume.id

    def delete(self, account: VastAccount, number: int) -> None:
        """DELETE /volumes/"""
        volume = self.all.get(number)
        if volume is None or volume.gone or volume.account != account.id:
            raise refusal(404, "no_such_volume", "Volume with that ID does not exist.")
        if self.users(volume):
            raise refusal(400, "invalid_args", "Volume is in use by an instance.")
        self._end(volume)

    def end_all(self, account: VastAccount) -> None:
        for volume in self.own(account):
            self._end(volume)

    def _end(self, volume: Volume) -> None:
        volume.gone = True
        volume.machine.volume_space += volume.size
        volume.meter.set(self._world.now, {})
        self._world.boxes.drop(volume.id)
        self._world.ledger.end(str(volume.id), "deleted")

    def row(self, volume: Volume) -> Row:
        """One volume as the list shows it. The name comes back as `label`."""
        users = self.users(volume)
        return {
            **volume.machine.describe(),
            "id": volume.id,
            "label": volume.name or None,
            "disk_space": volume.size,
            "status": "in-use" if users else "created",
            "start_date": volume.started,
            "instances": [{"id": number} for number in users],
            "storage_total_cost": volume.rate,
            "public_ipaddr": self._world.boxes.host,
            "cluster_id": None,
        }

    def outline(self) -> dict[str, Any]:
        return {
            str(v.id): {"account": v.account, "name": v.name, "machine": v.machine.id, "gone": v.gone, "size": v.size}
            for v in self.all.values()
        }
