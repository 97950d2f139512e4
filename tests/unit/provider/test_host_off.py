"""A rented machine that ends its own bill by a command: when it is issued, what proves that it took effect, its clock.

`shutdown` is a program on the host's PATH that writes down its call and ends the sshd with all of its sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.billing.ledger import Bill, spent
from sweepstack.cli.commands.confirm import Statement, gone
from sweepstack.cli.output import YES, Out
from sweepstack.core.records import Approval, UnclaimedWaiver
from sweepstack.core.resources import BoxState
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import No, NotYetGone, SweepstackError, TeardownRefused
from sweepstack.operations.strays.accounts import still_billed_boxes
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.operations.sweep.sources import Sources
from sweepstack.provider.resources.base import Gone, ReadAnswer
from sweepstack.provider.session import Severity
from sweepstack.status.compose import compose
from sweepstack.status.snapshot import Snapshot
from sweepstack.teardown.close_box import still_billed
from sweepstack.teardown.handover_records import forget_handover, handover_of, keep_handover
from tests.unit.provider.host_world import BY_COMMAND, HostSweep, rented_host
from tests.unit.provider.support import BOX, QUEUE, abandonment, action, approval_for, approved
from tests.unit.provider.test_box_end import edited


@pytest.fixture
def parked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSweep]:
    monkeypatch.setattr("sweepstack.onbox.host.agent.OFF_SECONDS", 0.1)
    with rented_host(tmp_path, monkeypatch, BY_COMMAND) as sweep:
        sweep.host.install_shutdown()
        yield sweep


def calls(sweep: HostSweep) -> list[str]:
    record = sweep.host.folder / "shutdowns"
    return record.read_text().splitlines() if record.exists() else []


def delete(sweep: HostSweep, box: BoxState, *, timeout: float = 0) -> None:
    BOX.delete(sweep.op(name=box.name, timeout=timeout), box.native_id, box)


def stop(sweep: HostSweep, box: BoxState, *, timeout: float = 0) -> BoxState:
    wanted = sweep.box_inputs(box.name, want="stopped")
    return BOX.update(sweep.op(name=box.name, timeout=timeout), box.native_id, box, wanted)


def bill_of(sweep: HostSweep, box: BoxState) -> Bill:
    bill = spent(sweep.store, datetime.now(UTC)).of(box.native_id)
    assert bill is not None
    return bill


def test_want_stopped_powers_it_off_with_proof_and_starts_the_clock(parked: HostSweep) -> None:
    box = parked.trained()
    checked = BOX.check(parked.op(), parked.box_inputs(), parked.box_inputs(want="stopped"))
    assert checked.failures == []
    assert "released after 15 d, which kills scratch, data (at 20" in parked.said.text(Severity.INFO)
    assert calls(parked) == []

    box = stop(parked, box)
    assert calls(parked) == ["shutdown "]
    assert not parked.host.answers
    assert box.phase == "stopped"
    assert bill_of(parked, box).per_hour == 0.01

    parked.said.lines.clear()
    seen = parked.seen(box)
    assert (seen.state.phase, seen.unhealthy) == ("stopped", ())
    assert "CLOCK released in 14 d 23 h (20" in parked.said.warnings
    assert stop(parked, box).phase == "stopped"
    assert len(calls(parked)) == 1, "what is off is not asked again"

    parked.host.start()
    parked.said.lines.clear()
    seen = parked.seen(box)
    assert "wanted stopped: it bills as if it ran" in seen.unhealthy[0]
    assert "runs again, and bills $0.50/h" in parked.said.warnings
    assert bill_of(parked, box).per_hour == 0.5
    assert handover_of(parked.store, box.native_id) is None, "its silence proved nothing for the next time"


def test_a_silence_that_nobody_here_could_hear_proves_nothing(
    parked: HostSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key to come in with, or a name that leads there by a command of another machine: nothing was even tried. And
    nothing starts it from here."""
    box = stop(parked, parked.box())
    elsewhere = box.model_copy(update={"adapter": f"ssh:gpu1=*,{parked.host.address}"})
    for state, key in ((box, parked.folder / "none"), (elsewhere, parked.host.key)):
        with monkeypatch.context() as here:
            here.setenv("SWEEPSTACK_SSH_KEY", str(key))
            seen = parked.seen(state)
        assert "UNKNOWN" in seen.unhealthy[0], state.adapter
        assert handover_of(parked.store, box.native_id) is not None, "what was proved before stays on record"
    assert parked.seen(box).state.phase == "stopped"
    with pytest.raises(SweepstackError, match=r"box-0 is off: power-off since .* start it where it was rented"):
        BOX.update(parked.op(), box.native_id, box, parked.box_inputs())
    assert QUEUE.check(parked.op("Queue"), None, parked.queue_inputs(box, want="stopped")).failures == []


def test_a_delete_powers_it_off_and_keeps_what_is_there(parked: HostSweep) -> None:
    box = parked.trained()
    with pytest.raises(TeardownRefused):
        delete(parked, box)
    receipt = parked.verified(box)
    word = approval_for(box, receipt=receipt)
    for wrong in (word.model_copy(update={"actions": (action(box, verb="stop"),)}), None):
        with pytest.raises(TeardownRefused):
            delete(parked, approved(box, wrong))
    assert calls(parked) == [], "an approval for the one verb is none for the other"
    delete(parked, approved(box, word))
    assert calls(parked) == ["shutdown "]
    assert not parked.host.answers
    assert parked.listed() == [box.native_id], "power-off keeps every disk; a release is nobody's here"
    assert (parked.root(box) / "data").is_dir()
    bill = bill_of(parked, box)
    assert (bill.ended_how, bill.per_hour) == ("power-off", 0.01), "the disk bills until it is released"
    assert parked.store.teardown() is None
    assert "sweepstack does not watch it any more: released at 20" in parked.said.warnings
    assert "bills $0.01/h until it is released: (release) in its console; then sweepctl confirm gone" in (
        parked.said.warnings
    )


def test_what_stands_still_bills_on_every_screen_until_a_person_saw_it_released(
    parked: HostSweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the destroy nothing is in the state, and the data disk bills."""
    box = stop(parked, parked.trained())  # the same phase and price before the end as after it
    known = EvidenceStore.open(box.evidence)
    given_up = approved(box, approval_for(box, abandon=(abandonment(box),)))
    delete(parked, given_up)
    (rest,) = still_billed(known, spent(known, datetime.now(UTC)), known.births())
    assert (rest.box, rest.price_per_hour, rest.how) == ("box-0", 0.01, "power-off")

    said = KnownStates(births={"sweep-t": known.births()}, still_billed=[("sweep-t", rest)])
    (finding,) = still_billed_boxes(said)
    assert (finding.bills_unknown, finding.price_per_hour) == (True, 0.01)
    assert "confirm gone --stack sweep-t box-0" in finding.next
    state, births, costs = parked.stack_state(), tuple(known.births()), spent(known, datetime.now(UTC))
    snapshot = Snapshot(state, costs.at, (), {}, births=births, spent=costs, still_billed=(rest,))
    view = compose(snapshot)
    assert (view.bills, view.meter.per_hour) == ("yes", 0.01)
    assert any("bills $0.01/h until it is released: (release) in its console" in note for note in view.notes)

    file = SimpleNamespace(path=parked.folder / "none", shown="x")
    target: Any = SimpleNamespace(stack="sweep-t", file=file)
    sources = Sources(target, state, True, box.evidence, known, "")
    monkeypatch.setattr(gone, "open_sources", lambda _target: sources)
    parked.host.start()
    with pytest.raises(No, match=r"still answers.* in its console"):
        gone.confirm(target, Statement("box-0", "released"), Out(as_json=True))
    parked.host.stop()
    assert gone.confirm(target, Statement("box-0", "released", by="ada"), Out(as_json=True)) == YES
    bill = bill_of(parked, box)
    assert (bill.per_hour, bill.ended_how) == (0.0, "power-off, released: ada")
    assert still_billed(known, spent(known, datetime.now(UTC)), known.births()) == []


def test_a_state_that_was_edited_and_evidence_that_lies_on_it_power_nothing_off(parked: HostSweep) -> None:
    """The same rows as for every other platform; and the host is this machine."""
    box = parked.trained()
    word = approval_for(box, receipt=parked.verified(box))
    for row, state in edited(box, word, parked).items():
        with pytest.raises(TeardownRefused):
            delete(parked, state, timeout=3)
        assert calls(parked) == [], row
    inside = parked.root(box) / "data" / "kept"
    (parked.store.root / "cells").rename(inside)
    (parked.store.root / "cells").symlink_to(inside)
    with pytest.raises(TeardownRefused, match="the evidence lies on this very box"):
        delete(parked, approved(box, word))
    assert (calls(parked), handover_of(parked.store, box.native_id)) == ([], None)


def test_a_box_that_is_off_already_ends_without_another_command(parked: HostSweep) -> None:
    box = parked.trained()
    receipt = parked.verified(box)
    box = stop(parked, box)
    with pytest.raises(TeardownRefused, match="2 of 2 cells verified") as refused:  # the journal's copy is all of it
        delete(parked, approved(box, approval_for(box, receipt=receipt)))
    assert "unclaimed/box-0" in str(refused.value), "what else lies there can't be counted any more"
    rest = UnclaimedWaiver(box=box.name, native_id=box.native_id, files=0, bytes=0, uncounted=True, reason="caches")
    word = approval_for(box, receipt=receipt, unclaimed=(rest,))
    word = word.model_copy(update={"waivers_digest": Approval.digest_waivers((), (), (rest,))})
    delete(parked, approved(box, word))
    assert calls(parked) == ["shutdown "]
    assert (bill_of(parked, box).ended_how, bill_of(parked, box).per_hour) == ("power-off", 0.01)


def test_a_command_that_changes_nothing_proves_nothing(parked: HostSweep) -> None:
    (parked.host.folder / "bin" / "shutdown").write_text("#!/bin/sh\necho ignored\n")
    box = parked.box()
    with pytest.raises(NotYetGone, match=r"it took 'shutdown', and answers on") as error:
        delete(parked, approved(box, approval_for(box)), timeout=3)
    assert "confirm gone --stack sweep-t box-0" in str(error.value)
    with pytest.raises(SweepstackError, match=r"answers on.* It may bill as if it ran"):
        stop(parked, box, timeout=3)
    assert bill_of(parked, box).per_hour == 0.5
    (parked.host.folder / "bin" / "shutdown").unlink()
    with pytest.raises(NotYetGone, match="there is no shutdown on this host: nothing was issued"):
        delete(parked, approved(box, approval_for(box)), timeout=3)


def test_silence_alone_proves_nothing(parked: HostSweep) -> None:
    box = parked.box()
    word = approval_for(box)
    parked.host.stop()
    with pytest.raises(TeardownRefused):
        delete(parked, approved(box, word), timeout=3)
    with pytest.raises(TeardownRefused, match="whether it runs is not known"):
        stop(parked, box, timeout=3)
    seen = parked.seen(box)
    assert "UNKNOWN" in seen.unhealthy[0]
    assert bill_of(parked, box).per_hour == 0.5
    given_up = approved(box, approval_for(box, abandon=(abandonment(box),)))
    with pytest.raises(NotYetGone, match="the host does not answer, and whether it took 'shutdown' is not known"):
        delete(parked, given_up, timeout=3)
    assert bill_of(parked, box).per_hour == 0.5


def test_a_wait_that_was_cut_off_is_taken_up(parked: HostSweep) -> None:
    """Killed between the host's yes and the proof: nothing is issued twice, and silence after a yes is proof."""
    box = parked.box()
    word = approval_for(box)
    delete(parked, approved(box, word))
    known = handover_of(parked.store, box.native_id)
    assert known is not None
    keep_handover(parked.store, known.model_copy(update={"silent_at": None}))
    parked.store.write_birth(parked.born().model_copy(update={"ended_at": None, "ended_how": None}))
    delete(parked, approved(box, word))
    assert calls(parked) == ["shutdown "]
    assert parked.born().ended_how == "power-off"
    assert isinstance(BOX.read(parked.op(), box.native_id, box), Gone)
    forget_handover(parked.store, box.native_id)
    assert isinstance(BOX.read(parked.op(), box.native_id, box), ReadAnswer), "without the record it is not known"


def test_another_box_at_work_on_the_same_host_keeps_it_on(parked: HostSweep) -> None:
    parked.hold("a", "b")
    other = parked.at_work("b", name="box-1")
    box = parked.box()
    with pytest.raises(NotYetGone, match=f"{other.native_id} is at work on the same host"):
        delete(parked, approved(box, approval_for(box)), timeout=3)
    assert calls(parked) == []
    assert parked.workers(other)
