"""A sweep whose boxes' queues several workers share, on a cluster, driven handler by handler: no engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.core.journal import parse_journal
from sweepstack.core.resources import BoxInputs, BoxState, VolumeState
from sweepstack.onbox.common import box_layout
from tests.unit.provider.support import Sweep

TEARDOWN = {"verb": "destroy", "kills": ("scratch", "data", "durable"), "keeps": ()}


class SharedQueueSweep(Sweep):
    """As `Sweep`; nothing outlives its boxes, since the durable tier is a part of each. `control`: the folder where the
    jobs note what they see."""

    control: Path

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.boxes: list[BoxState] = []

    def keep(self) -> None:
        """Nothing is kept."""

    def mounts(self) -> dict[str, str]:
        return {}

    def made_volume(self) -> VolumeState:
        raise AssertionError("a sweep on a cluster has no volume")

    def box_inputs(self, name: str = "box-0", **changes: Any) -> BoxInputs:
        return super().box_inputs(name, **({"teardown": TEARDOWN, "price_per_hour": 0} | changes))

    def box(self, name: str = "box-0", *, timeout: float = 0, **changes: Any) -> BoxState:
        self.boxes.append(super().box(name, timeout=timeout, **changes))
        return self.boxes[-1]

    def on_box(self, box: BoxState) -> dict[str, Any]:
        return super().on_box(box) | {"adapter": box.adapter, "teardown": box.teardown}

    def channel(self, box: BoxState) -> Any:
        return self.platform.channel(box.native_id, box.account)

    # what there is to see

    def journal(self, box: BoxState) -> list[Mapping[str, Any]]:
        """The whole lines; fails where the chain is broken."""
        path = self.root(box) / box_layout.JOURNAL
        data = path.read_bytes() if path.exists() else b""
        parse_journal(data)
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def events(self, box: BoxState, event: str) -> list[Mapping[str, Any]]:
        return [entry for entry in self.journal(box) if entry["event"] == event]

    def sealed(self, box: BoxState) -> set[str]:
        """Also those that a worker had sealed when it was killed: the next one finds them so."""
        return {entry["cell"] for event in ("cell-sealed", "cell-found-sealed") for entry in self.events(box, event)}

    def worker_of(self, box: BoxState, cell: str) -> str:
        """The worker that has begun a cell last."""
        return str([e["worker"] for e in self.events(box, "cell-started") if e["cell"] == cell][-1])

    def starts(self) -> Counter[str]:
        """How often each cell began."""
        return Counter(line.split()[0] for line in self.started())

    def picture(self) -> str:
        """What is there, for a failure's message."""
        raise NotImplementedError

    def assert_honest(self, box: BoxState) -> None:
        """Whatever happened: no cell ran twice at once, none was sealed twice, none is lost."""
        assert not (self.control / "overlap").exists(), (self.control / "overlap").read_text() + self.picture()
        seals = Counter(entry["cell"] for entry in self.journal(box) if entry["event"] == "cell-sealed")
        assert all(count == 1 for count in seals.values()), seals
        assert not (held_twice := overlapping_claims(self.journal(box))), held_twice


def overlapping_claims(journal: list[Mapping[str, Any]]) -> list[str]:
    """Claims of a cell that another worker held then, by the journal alone: in words."""
    holder: dict[str, str] = {}
    wrong = []
    for entry in journal:
        event, worker, cell = entry["event"], entry.get("worker"), entry.get("cell")
        if event == "cell-started" and worker:
            if holder.get(cell, worker) != worker:
                wrong.append(f"{cell}: {worker} began while {holder[cell]} held it (seq {entry.get('seq')})")
            holder[cell] = worker
        elif event in ("cell-sealed", "cell-failed") and cell in holder:
            del holder[cell]
        elif event in ("runner-stopped", "worker-ended") and worker:
            holder = {held: by for held, by in holder.items() if by != worker}
    return wrong
