"""What a round of `tend` brings of cells that begin from others, and what leads on where none is at work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.cli.commands.wait import no_hope
from sweepstack.core.budget import Budget
from sweepstack.extensions.longer.rounds import bring_in, may_begin
from sweepstack.launch.retries import Retry, add
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations import tend
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.tend import Round, Tending
from sweepstack.status.compose import compose
from sweepstack.status.snapshot import Snapshot
from tests.unit.cli.support import STACK, Box, World, by_name

LATER = f"sweepctl tend --stack {STACK}    (pulls, verifies, and brings the cells that are still to come)"
UP = f"pulumi up --stack {STACK}    (starts what begins from a verified cell)"
WAIT = f"sweepctl wait --stack {STACK} verified    (the tend at work brings the cells that are still to come)"

ENDED = ("lr0.1", "lr0.3", "lr0.9")


@pytest.fixture
def box(world: World) -> Box:
    """The cells of the grid have ended; `long` begins from lr0.1, `longest` from that."""
    chain = "[{name: long, lr: 0.5, from: lr0.1}, {name: longest, lr: 0.5, from: long}]"
    world.lrs = f"[0.1, 0.3, 0.9]}}\n      add: {chain}  # "  # what closes the grid is a comment then
    box = world.add()
    world.up_roster = world.file_roster()
    box.launch(*ENDED)
    for name in ENDED:
        box.seal(name)
    world.save()
    return box


def now() -> Snapshot:
    return take_snapshot(open_sources(Target.find(STACK)))


def verify(world: World) -> dict[str, Any]:
    assert world.run("pull").code == 0
    return dict(world.run("verify", "--json").json)


def following(world: World) -> list[str]:
    return list(world.run("status", "--json").json["next"])


def test_a_cell_may_begin_once_its_source_is_verified_and_only_as_long(world: World, box: Box) -> None:
    assert may_begin(world.store, now()) == (), "sealed, and not verified"
    verify(world)
    receipt = now().receipt
    manifest = next(cell.manifest for cell in receipt.cells if cell.name == "lr0.1") if receipt else None
    assert may_begin(world.store, now()) == ("long",), "longest begins from long, which has not run"
    box.want = "stopped"
    world.save()
    assert may_begin(world.store, now()) == ()
    box.want = "running"
    world.save()
    (copy,) = (world.store.root / "cells" / "lr0.1").glob("metrics.json")
    data = copy.read_bytes()
    copy.write_bytes(data + b" ")
    assert may_begin(world.store, now()) == (), "its copy is not what was verified"
    copy.write_bytes(data)
    add(world.store, {"lr0.1": Retry(retry=1, salt=1, manifest=manifest, by="ann", at=datetime.now(UTC))})
    assert may_begin(world.store, now()) == (), "it was asked to run again"


def test_none_is_brought_while_boxes_end_or_a_budget_is_used_up(world: World, box: Box) -> None:
    receipt = verify(world)["receipt"]
    assert may_begin(world.store, now()) == ("long",)
    assert may_begin(world.store, replace(now(), budget=Budget(usd=1e-9, stop=True))) == ()
    assert may_begin(world.store, replace(now(), budget=Budget(usd=1e-9))) == ("long",), "which stops no box"
    assert may_begin(world.store, replace(now(), budget=Budget(usd=1000, stop=True))) == ("long",)
    world.open_teardown(receipt, box)
    assert may_begin(world.store, now()) == ()
    box.vanish()
    assert may_begin(world.store, now()) == ()


def step(name: str, *changed: str, op: str = "update") -> dict[str, Any]:
    return {"op": op, "urn": f"urn:pulumi:{STACK}::sweepstack::sweepstack:index:Queue::{name}", "diffReasons": changed}


@pytest.mark.parametrize(
    ("shown", "code", "begun", "again", "said"),
    [
        ([step("box-0", "sources")], 0, ["long"], False, ""),
        ([step("box-0", "sources")], 7, [], True, "`pulumi up` ended with 7: the next round tries again"),
        (SweepstackError("no answer"), 0, [], True, "the preview of that failed (no answer): the next round"),
        ([step("box-0", "sources", "job")], 0, [], False, "would also change queue box-0 (job): type it yourself"),
        ([step("box-0", op="same")], 0, [], False, ""),
    ],
)
def test_the_engine_brings_it_alone_or_the_round_says_why_not(
    world: World, box: Box, shown: Any, code: int, begun: list[str], again: bool, said: str
) -> None:
    verify(world)

    def preview(_root: object, _stack: str, words: Sequence[str]) -> Any:
        assert [urn.rpartition("::")[2] for urn in words[1::2]] == ["box-0"], "the queues, and nothing that rents"
        if isinstance(shown, SweepstackError):
            raise shown
        return shown

    world.monkeypatch.setattr(tend, "preview", preview)
    calls: list[Sequence[str]] = []
    round_ = Round()
    bring_in(world.root, world.store, now(), round_, lambda words: calls.append(words) or code, lambda _: None)
    assert (round_.begun, round_.tries_again) == (begun, again)
    assert len(calls) == bool(begun or code)
    assert said in " ".join(round_.problems)
    assert bool(round_.problems) is bool(said)


def test_what_leads_on_where_cells_come_later(world: World, box: Box) -> None:
    """Not `wait done`, which would wait for what no queue has; and no second `tend`, which would be refused."""
    box.log("runner-started", pid=2)
    box.start("lr0.9", attempt=2)
    box.alive()
    assert following(world) == [LATER], "while cells run"
    box.seal("lr0.9", attempt=2)
    box.alive(False)
    cells = by_name(world.run("status", "--json").json["cells"])
    assert [cells[name]["note"] for name in ("long", "longest")] == [
        "begins once lr0.1 is verified",
        "begins once long is verified",
    ]
    assert following(world) == [LATER]
    assert verify(world)["next"] == [UP, LATER]
    assert following(world) == [UP, LATER]
    at = datetime.now(UTC)
    times = {"since": at, "at": at, "until": at + timedelta(hours=1)}
    for pid, expected in ((os.getppid(), [WAIT]), (os.getpid(), [UP, LATER])):
        world.store.write_record(tend.NAME, Tending(host=tend.host_identity(), pid=pid, **times))
        assert following(world) == expected, "its own claim is no other tend's"


def test_a_wait_does_not_give_up_between_two_rounds_of_a_tend(world: World, box: Box) -> None:
    assert "did not finish: long (pending)" in no_hope("done", now(), compose(now()))
    at = datetime.now(UTC)
    claim = Tending(host="another", pid=1, since=at, at=at, until=at + timedelta(hours=1))
    world.store.write_record(tend.NAME, claim)
    assert no_hope("done", now(), compose(now())) == ""


def test_where_the_source_failed_no_up_is_named_that_does_nothing(world: World) -> None:
    world.lrs = "[0.1]}\n      add: [{name: long, lr: 0.5, from: lr0.1}]  # "
    box = world.add()
    world.up_roster = world.file_roster()
    box.launch("lr0.1")
    box.start("lr0.1")
    box.fail("lr0.1")
    assert following(world)[0] == f"sweepctl logs --stack {STACK} lr0.1"
