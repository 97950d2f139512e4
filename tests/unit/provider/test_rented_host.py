"""A rented machine whose bill only a person ends: what a delete does and asks for, which confirmation counts."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.billing.ledger import spent
from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.commands.confirm import gone as confirm_gone_command
from sweepstack.cli.commands.confirm.gone import confirm as confirm_gone
from sweepstack.cli.output import YES, Out
from sweepstack.core.resources import BoxState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import No, NotYetGone, SweepstackError, TeardownRefused, Unsure
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.cell_moves import OtherBox, find
from sweepstack.operations.strays.beside_sweep import Search, search
from sweepstack.operations.sweep.sources import Sources
from sweepstack.provider.resources.base import Gone, ReadAnswer
from sweepstack.teardown.handover_records import Handover, handover_of, keep_handover
from tests.simulators.autodl import OFF
from tests.unit.autodl_world import autodl_world
from tests.unit.provider.host_world import BY_PERSON, MANUAL, HostSweep, rented_host
from tests.unit.provider.support import BOX, abandonment, approval_for, approved
from tests.unit.provider.test_given_up import gone, in_zeros, read_only, recorded, unreachable

SAW = "listed as terminated"


@pytest.fixture
def rented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSweep]:
    with rented_host(tmp_path, monkeypatch, BY_PERSON) as sweep:
        yield sweep


def no_writes(sweep: HostSweep) -> str:
    """The disk is read-only or full: each folder of records that is written is a file for a write."""
    (sweep.store.root / "records" / "handovers").write_text("no folder")
    return read_only(sweep)


def delete(sweep: HostSweep, box: BoxState) -> None:
    BOX.delete(sweep.op(name=box.name), box.native_id, box)


def let_go(box: BoxState) -> BoxState:
    """Nothing was launched on it, and a person lets it go."""
    return approved(box, approval_for(box))


def begun(sweep: HostSweep) -> BoxState:
    """A box whose end a person has to finish: nothing of it is left on its host."""
    box = let_go(sweep.box())
    with pytest.raises(NotYetGone):
        delete(sweep, box)
    return box


def say(sweep: HostSweep, monkeypatch: pytest.MonkeyPatch, box: BoxState, statement: Statement | None = None) -> int:
    """The command, with a state that has this box."""
    state = sweep.stack_state(box)
    file = SimpleNamespace(path=sweep.folder / "no-stack-file", shown="stacks/Pulumi.sweep-t.yaml")
    target: Any = SimpleNamespace(stack="sweep-t", file=file)
    sources = Sources(target, state, True, box.evidence, Evidence(box.evidence).usable, "")
    monkeypatch.setattr(confirm_gone_command, "open_sources", lambda _target: sources)
    return confirm_gone(target, statement or Statement(box.name, SAW, by="ada"), Out(as_json=True))


def open_bill(sweep: HostSweep, box: BoxState) -> float | None:
    bill = spent(sweep.store, datetime.now(UTC)).of(box.native_id)
    assert bill is not None
    return bill.per_hour


def test_a_delete_ends_what_is_ours_and_asks_for_the_person_s_step(rented: HostSweep) -> None:
    box = rented.box()
    assert rented.listed() == [box.native_id]
    with pytest.raises(TeardownRefused):
        delete(rented, box)
    assert rented.listed() == [box.native_id], "the check comes first"
    with pytest.raises(NotYetGone) as error:
        delete(rented, let_go(box))
    said = str(error.value)
    for part in (MANUAL, "terminate", "$0.50/h", "$12.00/day", "sweepctl confirm gone --stack sweep-t box-0 --saw"):
        assert part in said, said
    assert rented.listed() == []
    assert rented.platform.get(box.native_id, box.account).phase is Phase.ENDING, "it bills, so it is not gone"
    assert open_bill(rented, box) == 0.5
    assert rented.born().ended_at is None


def test_it_bills_on_at_every_look_until_a_word_and_a_failed_connect(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    box = begun(rented)
    rented.host.stop()
    with pytest.raises(NotYetGone, match="confirm gone"):
        delete(rented, box)  # a host that does not answer proves nothing
    seen = rented.seen(box)
    assert "UNKNOWN" in seen.unhealthy[0]
    assert open_bill(rented, box) == 0.5

    yesterday = datetime.now(UTC) - timedelta(hours=1)
    assert say(rented, monkeypatch, box, Statement("box-0", f" {SAW} ", by="ada", at=yesterday.isoformat())) == YES
    said = json.loads(capsys.readouterr().out)["confirmed"]
    assert (said["by"], said["saw"], said["native_id"]) == ("ada", SAW, box.native_id)
    assert said["tried"]

    rented.host.start()
    with pytest.raises(NotYetGone, match=r"ada confirmed its end, and .* still answers"):
        delete(rented, box)
    assert isinstance(BOX.read(rented.op(), box.native_id, box), ReadAnswer)
    assert open_bill(rented, box) == 0.5
    rented.host.stop()
    delete(rented, box)
    bill = spent(rented.store, datetime.now(UTC)).of(box.native_id)
    assert bill is not None
    assert bill.ended_at is not None
    assert abs(bill.ended_at - yesterday) < timedelta(seconds=1), "it ended when the person saw so"
    assert bill.ended_how == "confirmed by ada"
    assert rented.store.teardown() is None


def test_a_refresh_takes_the_word_and_closes_the_books(rented: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = begun(rented)
    rented.host.stop()
    say(rented, monkeypatch, box)
    assert isinstance(BOX.read(rented.op(), box.native_id, box), Gone)
    assert rented.born().ended_at is not None
    assert rented.store.losses() == []


def test_the_word_is_refused_where_nobody_began(rented: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = rented.box()
    rented.host.stop()
    for state in (box, let_go(box)):  # that nothing was launched can't be seen any more
        with pytest.raises(No, match=r"the end of box box-0 .* was not begun") as error:
            say(rented, monkeypatch, state)
        assert "data/box-0" in error.value.next[1]
    assert handover_of(rented.store, box.native_id) is None


def test_the_word_is_for_one_native_id(rented: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = begun(rented)
    rented.host.stop()
    say(rented, monkeypatch, box)
    other = box.model_copy(update={"native_id": "host-aaaaaaaaaa"})
    with pytest.raises(No, match="was not begun"):
        say(rented, monkeypatch, other)
    known = handover_of(rented.store, box.native_id)
    assert known is not None
    assert known.over(box.native_id)
    assert not known.over(other.native_id)
    silent = known.model_copy(
        update={"confirmed": None, "by": "ssh", "accepted_at": known.begun_at, "silent_at": known.begun_at}
    )
    assert silent.over(box.native_id)
    assert not silent.over(other.native_id)
    copied = known.model_copy(update={"native_id": other.native_id})
    keep_handover(rented.store, copied)  # edited by hand: the confirmation in it is another box's
    seen = rented.seen(other)
    assert "UNKNOWN" in seen.unhealthy[0]


def test_words_that_are_refused(rented: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = begun(rented)
    mistakes = {
        "still answers.*Nothing was written": Statement("box-0", SAW),
        "--saw is empty": Statement("box-0", "  "),
        "write what you saw": Statement("box-0", "what the console shows"),
        '--at "soon" is no time': Statement("box-0", SAW, at="soon"),
        "is in the future": Statement("box-0", SAW, at="2999-01-01T00:00Z"),
        r"there is no box box-9 in the state or on record \(there: box-0\)": Statement("box-9", SAW),
    }
    for said, statement in mistakes.items():
        with pytest.raises(No, match=said):
            say(rented, monkeypatch, box, statement)
    known = handover_of(rented.store, box.native_id)
    assert known is not None
    assert known.confirmed is None


def test_a_machine_that_died_is_given_up_confirmed_and_closed(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three commands from a host that no one can reach: give-up, confirm gone, destroy."""
    box = rented.trained()
    rented.host.stop()
    with pytest.raises(TeardownRefused, match="the journal could not be read"):
        delete(rented, box)
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    assert say(rented, monkeypatch, box) == YES
    delete(rented, box)
    assert [loss.cells for loss in rented.store.losses()] == [("a", "b")]
    assert rented.store.teardown() is None


def test_what_the_platform_s_api_shows_running_is_not_confirmed_as_gone(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that hangs bills; where the API shows it, it is turned off from here."""
    box = rented.box().model_copy(update={"platform": "autodl"})
    rented.host.stop()
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    power_off = Statement(box.name, SAW, by="ada", power_off=True)
    with autodl_world(monkeypatch, scale=1000) as autodl:
        with pytest.raises(Unsure, match="no API shows it"):
            say(rented, monkeypatch, box, power_off)
        autodl.act("rent", {"id": "pro-1", "port": rented.host.port})
        with pytest.raises(No, match="autodl shows pro-1 at the address of box box-0: running, and it bills") as error:
            say(rented, monkeypatch, box)
        assert "--power-off" in error.value.next[0]
        assert (autodl.count(OFF), handover_of(rented.store, box.native_id)) == (0, None)
        assert say(rented, monkeypatch, box, power_off) == YES
        assert autodl.instances["pro-1"].status == "shutdown"
        assert say(rented, monkeypatch, box) == YES, "what is off is confirmed without more"
        monkeypatch.setenv("AUTODL_TOKEN", "no-token-of-anybody")
        assert say(rented, monkeypatch, box) == YES, "what can't be asked stays what the person saw"
        with pytest.raises(Unsure, match="is not known"):
            say(rented, monkeypatch, box, power_off)


# The next test plays two of the others, and test_given_up.py all of them on a box of this machine.
@pytest.mark.parametrize(
    "lost",
    [unreachable, *(pytest.param(one, marks=pytest.mark.proof) for one in (in_zeros, gone, no_writes))],
    ids=lambda lost: lost.__name__,
)
def test_a_host_that_is_given_up_ends_without_its_evidence(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch, lost: Callable[[HostSweep], str]
) -> None:
    """Its end, and the confirmation that its bill is over, are on this computer alone. Each way in is tried."""
    box = rented.trained()
    box = box.model_copy(update={"evidence": lost(rented)})
    with pytest.raises(TeardownRefused):
        delete(rented, box)
    recorded(rented, box)
    with pytest.raises(NotYetGone, match="nothing of the box is left on the host"):
        delete(rented, box)
    assert "only this computer has on record" in rented.said.warnings
    assert rented.listed() == []
    rented.host.stop()
    with pytest.raises(NotYetGone):
        delete(rented, box)  # a host that does not answer proves nothing
    assert say(rented, monkeypatch, box) == YES
    rented.host.start()
    with pytest.raises(NotYetGone, match="still answers"):
        delete(rented, box)
    rented.host.stop()
    delete(rented, box)


@pytest.mark.parametrize("lost", [gone, no_writes], ids=lambda lost: lost.__name__)
def test_a_machine_that_died_is_confirmed_by_the_record_on_this_computer(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch, lost: Callable[[HostSweep], str]
) -> None:
    """give-up, confirm gone, destroy; no `up` brings the abandonment into the state."""
    box = rented.trained()
    rented.host.stop()
    box = box.model_copy(update={"evidence": lost(rented)})
    with pytest.raises(No, match=r"was not begun|the records can't be read"):
        say(rented, monkeypatch, box)
    recorded(rented, box)
    assert say(rented, monkeypatch, box) == YES
    delete(rented, box)


def test_a_host_that_is_not_given_up_is_not_handed_over_without_its_evidence(rented: HostSweep) -> None:
    box = let_go(rented.box()).model_copy(update={"evidence": gone(rented)})
    with pytest.raises(TeardownRefused):
        delete(rented, box)
    assert rented.listed() == [box.native_id]


def test_a_host_that_does_not_answer_is_handed_over_all_the_same(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = rented.box()
    rented.host.stop()
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    with pytest.raises(NotYetGone, match="the host could not be asked, so it may still run"):
        delete(rented, box)
    rented.host.start()
    with pytest.raises(NotYetGone, match="nothing of the box is left on the host"):
        delete(rented, box)
    assert rented.listed() == []


def test_another_machine_at_the_address_counts_only_when_it_is_named(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box = begun(rented)
    rented.host.stop()
    for path in rented.host.folder.glob("host_key*"):
        path.unlink()
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(rented.host.folder / "host_key")], check=True
    )
    rented.host.start()
    with pytest.raises(No, match="another machine answers") as error:
        say(rented, monkeypatch, box)
    key = error.value.next[0].split("--another ")[1]
    with pytest.raises(No):
        say(rented, monkeypatch, box, Statement("box-0", SAW, another="SHA256:" + "A" * 43))
    assert say(rented, monkeypatch, box, Statement("box-0", SAW, another=key)) == YES
    delete(rented, box)


def test_its_own_key_is_no_other_machine_s_on_a_computer_that_never_saw_it(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box = begun(rented)
    assert box.host_keys
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another computer"))
    with pytest.raises(No, match="still answers"):
        say(rented, monkeypatch, box, Statement("box-0", SAW, another=box.host_keys[0].split()[-1]))
    known = handover_of(rented.store, box.native_id)
    assert known is not None
    assert known.confirmed is None


def test_a_box_that_the_state_lost_is_confirmed_by_its_record(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = begun(rented)
    rented.host.stop()
    state = rented.stack_state()
    file = SimpleNamespace(path=rented.folder / "none", shown="x")
    target: Any = SimpleNamespace(stack="sweep-t", file=file)
    sources = Sources(target, state, True, box.evidence, EvidenceStore.open(box.evidence), "")
    monkeypatch.setattr(confirm_gone_command, "open_sources", lambda _target: sources)
    assert confirm_gone(target, Statement("box-0", SAW), Out(as_json=True)) == YES
    birth = rented.born()
    assert birth.ended_how is not None
    assert birth.ended_how.startswith("confirmed by ")
    assert rented.store.teardown() is None
    sources = replace(sources, state=rented.stack_state())
    assert search(sources.state, sources.store, [birth], target.file, box.evidence) == Search(), "and no box is missed"


def test_a_repeated_delete_keeps_the_word(rented: HostSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = rented.box()
    rented.host.stop()
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    say(rented, monkeypatch, box)
    rented.host.start()
    with pytest.raises(NotYetGone):
        delete(rented, box)
    known = handover_of(rented.store, box.native_id)
    assert isinstance(known, Handover)
    assert known.confirmed is not None
    assert known.ended_at is not None


@pytest.mark.parametrize("word", ["as it is made now", "made by an older version"])
def test_a_folder_that_was_removed_by_hand_ends_no_bill(
    rented: HostSweep, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """The host answers, so it bills. Its cells are lost; its end needs the person's step, and no approval."""
    box = rented.trained()
    shutil.rmtree(rented.root(box))
    if word != "as it is made now":
        shutil.rmtree(rented.platform_root / "ended")
    seen = rented.seen(box)
    assert "nothing of it is left on its host, which bills on" in seen.unhealthy[0]
    with pytest.raises(SweepstackError, match=r"bills on .*want: gone, then pulumi up") as refused:
        BOX.update(rented.op(), box.native_id, box, rented.box_inputs())
    birth = rented.born()
    free = birth.model_copy(update={"price_per_hour": 0.0})
    assert find(birth, Evidence(box.evidence)) == OtherBox(None, emptied=True)
    says_so = word == "as it is made now"
    assert find(free, Evidence(box.evidence)) == OtherBox(None, gone=not says_so, emptied=says_so), (
        "what the host says counts"
    )
    for part in (MANUAL, "sweepctl confirm gone --stack sweep-t box-0 --saw"):
        assert part in str(refused.value), "the person's step, and the three commands"
    assert open_bill(rented, box) == 0.5
    with pytest.raises(NotYetGone) as error:
        delete(rented, box)
    for part in (MANUAL, "$0.50/h", "sweepctl confirm gone --stack sweep-t box-0 --saw"):
        assert part in str(error.value)
    assert open_bill(rented, box) == 0.5
    assert [loss.cells for loss in rented.store.losses()] == [("a", "b")]
    with pytest.raises(No, match="still answers"):
        say(rented, monkeypatch, box)
    rented.host.stop()
    assert say(rented, monkeypatch, box) == YES
    delete(rented, box)
    bill = spent(rented.store, datetime.now(UTC)).of(box.native_id)
    assert bill is not None
    assert bill.ended_how == "confirmed by ada"
