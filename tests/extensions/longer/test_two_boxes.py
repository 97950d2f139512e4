"""A cell that begins from one of another box: what the queue's Check says, and what each box is told and sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.core.foreign_cells import elsewhere_text
from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.records import Cell
from sweepstack.core.resources import BoxState, QueueInputs
from sweepstack.evidence.manifest import binding_problem, parse_manifest
from sweepstack.launch.entries import changes
from sweepstack.launch.launch import read_journal
from sweepstack.launch.retries import Retry, add
from sweepstack.onbox.common.errors import EvidenceDamaged
from sweepstack.onbox.common.longer import SOURCE
from sweepstack.provider.resources.queue import launch_spec
from tests.unit.provider.support import QUEUE, Sweep

CELLS = (Cell(name="a", params={"word": "a"}), Cell(name="long", params={"word": "long", SOURCE: "a"}))


class Longer(Sweep):
    """`long` begins from `a`, which is box-0's."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        return CELLS

    def inputs(self, box: BoxState, name: str, **changes: Any) -> QueueInputs:
        """The queue of a box with one of the cells, as its Check leaves it."""
        other = next(cell for cell in CELLS if cell.name != name)
        mine = next(cell for cell in CELLS if cell.name == name)
        run = f"sh train.sh {{word}} {{out}} {self.control} && cp {{checkpoints}}/result.json {{out}}/begun.json || :"
        asked = self.queue_inputs(box, name, elsewhere=(elsewhere_text(other),), job={"run": run}, **changes)
        return asked.model_copy(update={"cells": (mine,)})

    def brought(self, box: BoxState, name: str, **changes: Any) -> Any:
        """Checks and brings up."""
        checked = QUEUE.check(self.op("Queue", box.name), None, self.inputs(box, name, **changes))
        assert checked.failures == []
        return QUEUE.create(self.op("Queue", box.name), checked.inputs)[1]

    def channel_journal(self, box: BoxState) -> Journal:
        return read_journal(self.channel(box))

    def lines(self, box: BoxState) -> list[dict[str, Any]]:
        path = self.root(box) / "data/sweep/queue.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def longer(sweep: Sweep) -> Longer:
    sweep.__class__ = Longer
    assert isinstance(sweep, Longer)
    return sweep


def verified_a(longer: Longer) -> tuple[BoxState, str]:
    """box-0, on which `a` was sealed, pulled and verified; and the manifest."""
    box = longer.box()
    longer.brought(box, "a")
    longer.drained(box)
    longer.verified(box)
    receipt = longer.store.receipt(str(longer.store.latest_receipt()))
    return box, str(next(cell.manifest for cell in receipt.cells if cell.name == "a"))


def test_it_waits_and_is_then_sent_what_was_verified(longer: Longer) -> None:
    one = longer.box("box-1")
    state = longer.brought(one, "long")
    assert (
        "queue of box-1: long waits for a: it is not verified yet; `pulumi up` or `sweepctl tend` brings it"
        in longer.said.infos
    )
    assert longer.lines(one) == []
    _, manifest = verified_a(longer)
    checked = QUEUE.check(longer.op("Queue", "box-1"), state, longer.inputs(one, "long"))
    assert checked.inputs.sources == {"long": manifest}
    assert f"queue of box-1: long begins from a, as verified ({manifest[7:23]})" in longer.said.infos
    state = QUEUE.update(longer.op("Queue", "box-1"), "q", state, checked.inputs)
    longer.drained(one)
    (line,) = longer.lines(one)
    assert line["from"] == {"cell": "a", "manifest": manifest}
    cell = longer.volume_root / longer.identity.identity / "cells" / "long"
    assert json.loads((cell / "begun.json").read_text()) == json.loads((cell.parent / "a/result.json").read_text())
    assert QUEUE.check(longer.op("Queue", "box-1"), state, longer.inputs(one, "long")).inputs.sources == state.sources


def test_what_is_sent_is_whole_or_refused(longer: Longer) -> None:
    """The box has no sealed copy, as on another machine."""
    verified_a(longer)
    one = longer.box("box-1")
    checked = QUEUE.check(longer.op("Queue", "box-1"), None, longer.inputs(one, "long"))
    sealed = longer.volume_root / longer.identity.identity / "cells"
    (sealed / "a").rename(longer.volume_root / "elsewhere")
    copy = longer.store.root / "cells" / "a" / "result.json"
    good = copy.read_bytes()
    copy.write_bytes(good[:-1] + b" ")
    with pytest.raises(EvidenceDamaged, match=r"result\.json is not what was sealed, and is not sent"):
        QUEUE.create(longer.op("Queue", "box-1"), checked.inputs)
    assert longer.lines(one) == []
    later = QUEUE.check(longer.op("Queue", "box-1"), None, longer.inputs(one, "long"))
    assert later.inputs.sources is None
    assert "long waits for a: result.json changed after the receipt" in longer.said.infos
    copy.write_bytes(good)
    longer.brought(one, "long")
    longer.drained(one)
    assert (sealed / "long" / "begun.json").read_bytes() == good


def test_a_source_that_runs_again_takes_out_a_cell_that_waits_and_leaves_one_that_began(longer: Longer) -> None:
    _, manifest = verified_a(longer)
    one = longer.box("box-1")
    state = longer.brought(one, "long")
    longer.drained(one)
    add(longer.store, {"a": Retry(retry=1, salt=1, manifest=manifest, by="ann", at=datetime.now(UTC))})
    checked = QUEUE.check(longer.op("Queue", "box-1"), state, longer.inputs(one, "long"))
    assert checked.inputs.sources == {"long": manifest}, "it has begun from that"
    QUEUE.update(longer.op("Queue", "box-1"), "q", state, checked.inputs)
    (line,) = longer.lines(one)
    spec = launch_spec(longer.op("Queue", "box-1"), state.model_copy(update={"sources": None}), longer.platform)
    assert changes(spec, longer.store, longer.channel_journal(one), {"long": line}).lines() == []
    todo = changes(spec, longer.store, parse_journal(b""), {"long": line})
    assert todo.lines() == [{"op": "drop", "cell": "long", "reason": "waits for a", "unless_started": True}]
    assert not todo.wanted


def test_a_source_that_was_dropped_is_refused_before_a_box_is_there(longer: Longer) -> None:
    one = longer.box("box-1")
    asked = longer.inputs(one, "long", dropped={"a": "pruned by asha"})
    early = QUEUE.check_early(longer.op("Queue", "box-1"), {}, asked.model_dump(mode="json"))
    assert [failure.reason for failure in early if failure.property == "cells"] == [
        "long begins from a, which was dropped (pruned by asha): it will never begin. Next: bring a back "
        "(sweepctl retry, or out of cells.drop), or take long out"
    ]
    assert QUEUE.check(longer.op("Queue", "box-1"), None, asked).failures


def test_a_seal_that_does_not_say_where_it_began_is_not_verified(longer: Longer) -> None:
    """As a runner of before would seal it, to which `from` means nothing."""
    verified_a(longer)
    one = longer.box("box-1")
    longer.brought(one, "long")
    longer.drained(one)
    path = longer.volume_root / longer.identity.identity / "cells" / "long" / "manifest.json"
    manifest = parse_manifest(path.read_bytes(), longer.identity.identity, "long")
    assert binding_problem(manifest, CELLS[1]) == ""
    other = manifest.model_copy(update={"begun_from": None})
    assert binding_problem(other, CELLS[1]) == "it did not begin from a"
