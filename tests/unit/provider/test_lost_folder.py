"""A host of one's own that answers, and has lost the folder of its boxes, or never made one: a real sshd."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.output import YES
from sweepstack.onbox.common import processes
from sweepstack.onbox.common.errors import No, RequestRefused, TeardownRefused
from sweepstack.operations.strays.beside_sweep import search
from tests.unit.provider.host_world import HostSweep, rented_host
from tests.unit.provider.support import FACTS, IDENTITY, abandonment, approval_for, approved
from tests.unit.provider.test_rented_host import delete, say

TYPED = 'sweepctl confirm gone --stack sweep-t box-0 --saw "…"'


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSweep]:
    with rented_host(tmp_path, monkeypatch, FACTS, 0.0) as sweep:
        yield sweep


def emptied(sweep: HostSweep) -> None:
    """Its disk was wiped: the folder of all boxes and volumes, and the registry."""
    for native_id in sweep.listed():
        processes.end_box(native_id, grace=0)
    shutil.rmtree(sweep.platform_root)


def made_anew(sweep: HostSweep) -> None:
    """Another sweep has begun there since."""
    emptied(sweep)
    sweep.platform.account()


@pytest.mark.parametrize("lost", [emptied, pytest.param(made_anew, marks=pytest.mark.proof)])  # the first row stays
def test_what_is_verified_ends_by_a_persons_word(
    own: HostSweep, monkeypatch: pytest.MonkeyPatch, lost: Callable[[HostSweep], None]
) -> None:
    """Found on 6f8d950f: five commands named one another, and none of them ended the box."""
    box = own.trained()
    own.verified(box)
    lost(own)
    with pytest.raises(TeardownRefused) as refused:
        delete(own, box)
    assert f"next            {TYPED}" in str(refused.value)
    assert "BOX" not in str(refused.value)
    assert say(own, monkeypatch, box) == YES
    delete(own, box)
    assert own.store.births()[0].ended_how == "confirmed by ada"
    assert own.store.losses() == []
    assert own.platform.get_volume(own.volume.native_id) is None
    assert own.box(mounts={}).generation == 2, "the host is good for another box"


def test_what_is_not_verified_is_given_up_by_name_first(own: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = own.trained()
    emptied(own)
    with pytest.raises(TeardownRefused) as refused:
        delete(own, box)
    said = str(refused.value)
    assert "next            sweepctl status --stack sweep-t    (once its folder is back" in said
    assert f'sweepctl give-up --stack sweep-t data/box-0 --reason "…" && {TYPED}' in said
    with pytest.raises(No, match="its cells were never verified here"):
        say(own, monkeypatch, box)
    assert not own.platform_root.exists(), "nothing was written there"
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    assert say(own, monkeypatch, box) == YES
    delete(own, box)
    assert [loss.cells for loss in own.store.losses()] == [("a", "b")]


def test_a_box_that_is_there_or_bills_is_not_lost(
    own: HostSweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box = own.box()
    with pytest.raises(No, match="it is ended there"):
        say(own, monkeypatch, box)
    emptied(own)
    bills = box.model_copy(update={"price_per_hour": 0.5})
    bills = approved(bills, approval_for(bills, abandon=(abandonment(bills),)))
    with pytest.raises(No, match="it runs, and bills"):
        say(own, monkeypatch, bills)
    assert say(own, monkeypatch, box) == YES, "nothing was ever launched on it"


def refused_by_preflight(sweep: HostSweep) -> None:
    with pytest.raises(RequestRefused, match="nothing was made"):
        sweep.box(resources={"disk": "900TB"})


def test_what_preflight_refused_is_no_box(own: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found on 6f8d950f: its disk was replaced by a larger one, and no command got past the record of that try."""
    refused_by_preflight(own)
    assert own.store.births() == []
    box = own.box()
    birth = own.store.births()[0].model_copy(update={"native_id": None, "created_at": None})
    emptied(own)
    state: Any = SimpleNamespace(stack="sweep-t", boxes=(), volumes=(), problems=(), identity=None)
    target: Any = SimpleNamespace(stack="sweep-t", file=SimpleNamespace(sweep=dict))
    own.store.write_birth(birth.model_copy(update={"asked_at": datetime.now(UTC)}))
    assert [found.name for found in search(state, own.store, own.store.births(), target.file).orphans] == ["box-0"]
    own.store.write_birth(birth)  # what a provider leaves that was killed before it asked
    assert search(state, own.store, own.store.births(), target.file).orphans == ()
    with pytest.raises(No, match="was never asked for, by its record"):
        say(own, monkeypatch, box.model_copy(update={"name": "other"}), Statement("box-0", "no such box"))
    again = own.box(mounts={})
    assert (again.generation, own.listed()) == (1, [again.native_id])
    delete(own, approved(again, approval_for(again)))
    IDENTITY.delete(own.op("Identity", "identity"), own.identity.identity, own.identity)
