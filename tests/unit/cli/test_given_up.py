"""What a person decides about a box that is given up: on record wherever it can be written, and found by a delete."""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import replace

import pytest

from sweepstack.core.journal import parse_journal
from sweepstack.core.local_decisions import decisions
from sweepstack.core.observation import Existence, Observation
from sweepstack.evidence.stack_copy import keep_stack_file
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.engine.state import BoxEntry, parse_export
from sweepstack.teardown.abandonment import recorded_approvals
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.refusal import next_commands
from tests.unit.cli.support import STACK, World

GIVE_UP = ("give-up", "data/box-0", "--reason", "the disk died")
DESTROY = f"pulumi destroy --stack {STACK}"


def entry(world: World) -> BoxEntry:
    return parse_export(STACK, world.export()).boxes[0]


def ways(world: World) -> list[str | None]:
    """How a delete of the box may go, by each record, as the state has no approval."""
    box = BoxContext(entry(world).facts(), "local")
    return [
        may_end(BoxEnding(box, word, Observation(Existence.EXISTS)), full=True).way for word in recorded_approvals(box)
    ]


def test_it_is_on_record_in_the_evidence_and_here(world: World) -> None:
    world.full()
    result = world.run(*GIVE_UP, "--json")
    assert result.code == 0
    assert [place.split(" (")[0] for place in result.json["recorded"]] == [
        world.file.shown,
        "the evidence",
        "this computer",
    ]
    assert ways(world) == ["abandoned"], "this computer's line counts only where the evidence takes nothing"
    (line,) = decisions(entry(world).native_id)
    assert (line.what, line.reason, line.stack, line.expires) == ("abandoned", "the disk died", STACK, None)
    assert "cells without a verified copy" in line.found


def test_it_needs_no_stack_file(world: World) -> None:
    world.add("box-0").launch("lr0.3")
    world.file.path.unlink()
    refused = world.run("approve", "--box", "box-0", "--reason", "x")
    assert refused.code == 1
    assert "data/BOX" in refused.err
    result = world.run(*GIVE_UP, "--json")
    assert result.code == 0, result
    assert world.file.path.exists() is False
    assert ways(world) == ["abandoned"]
    assert result.json["next"] == [DESTROY]
    assert world.run("status", "--json").json["gates"][0]["way"] == "abandoned", "what a delete will say"


@pytest.mark.parametrize("lost", ["gone", "zeros"])
def test_it_needs_no_evidence(world: World, lost: str) -> None:
    world.full()
    if lost == "gone":
        shutil.rmtree(world.evidence)
    else:
        (world.evidence / "sweep.json").write_bytes(b"\0" * 80)
    result = world.run(*GIVE_UP)
    assert result.code == 0
    assert "not recorded there" in result.out
    assert ways(world) == ["abandoned"]
    revoked = world.run("revoke")
    assert revoked.code == 2, "the evidence could not be told"
    assert "the revocation could not be recorded" in revoked.out
    assert ways(world) == []
    assert world.run(*GIVE_UP).code == 0
    assert ways(world) == ["abandoned"]


def state_s_way(world: World) -> str | None:
    """How a delete may go by the approval that the last `pulumi up` left in the state."""
    box = entry(world)
    return may_end(
        BoxEnding(BoxContext(box.facts(), box.adapter), box.approval, Observation(Existence.EXISTS)),
        full=True,
    ).way


def test_what_was_revoked_stays_so_where_the_evidence_is_lost_later(world: World) -> None:
    world.full()
    assert world.run(*GIVE_UP).code == 0
    world.up()
    assert world.run("revoke").code == 0
    assert state_s_way(world) is None
    shutil.rmtree(world.evidence)
    assert state_s_way(world) is None, "the state still holds the abandonment, and it was revoked on this computer"
    assert world.run(*GIVE_UP).code == 0, "in the same second, too"
    assert ways(world) == ["abandoned"]


def test_what_was_revoked_here_stays_so_where_the_evidence_is_put_back_to_an_earlier_day(world: World) -> None:
    """Also an approval by a receipt: a backup, or a bucket that serves an older state, does not know the revocation."""
    first, _, receipt = world.verified()
    assert world.run("approve", receipt).code == 0
    given = world.file.approval()
    assert given is not None
    box = entry(world)
    seen = Observation(
        Existence.EXISTS,
        parse_journal((first.root / "data/sweep/journal.jsonl").read_bytes()),
        False,
    )

    def reasons() -> str:
        return "; ".join(may_end(BoxEnding(BoxContext(box.facts(), box.adapter), given, seen), full=True).reasons)

    assert "revoked" not in reasons()
    assert world.run("revoke").code == 0
    (world.evidence / "records" / "revoked.json").unlink()
    assert "the approval was revoked at" in reasons()


def test_what_this_computer_has_on_record_is_for_one_account(world: World) -> None:
    """Two accounts of one platform may use the same id."""
    world.full()
    world.evidence.rename(world.evidence.with_name("away"))
    assert world.run(*GIVE_UP).code == 0
    facts = entry(world).facts()
    assert list(recorded_approvals(BoxContext(facts, "local")))
    assert not list(recorded_approvals(BoxContext(replace(facts, account="another"), "local")))


def lose_the_list(world: World, *, writable: bool) -> None:
    """The list of what was revoked is damaged; and the disk may take nothing any more."""
    records = world.evidence / "records"
    (records / "revoked.json").write_bytes(b"{")
    if not writable:
        shutil.rmtree(records / "clearances", ignore_errors=True)
        (records / "clearances").write_text("no folder")


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read_only"])
def test_only_an_abandonment_given_since_counts_where_what_was_revoked_is_not_known(
    world: World, writable: bool
) -> None:
    """docs/adr/015: give-up and destroy lead out, and what was given before may have been revoked."""
    world.add("box-0").launch("lr0.3")
    assert world.run(*GIVE_UP).code == 0
    world.up()
    lose_the_list(world, writable=writable)
    assert state_s_way(world) is None
    assert set(ways(world)) <= {None}
    receipt = world.run("approve", "sha256:" + "0" * 64)
    assert receipt.code == 1
    assert "the receipt sha256:000" in receipt.err
    time.sleep(1.1)  # approvals are dated by the second
    result = world.run(*GIVE_UP, "--json")
    assert result.code == 0, result
    assert result.json["next"] == [DESTROY]
    assert "abandoned" in ways(world)
    assert world.run("status", "--json").json["gates"][0]["way"] == "abandoned", "what a delete will say"
    if writable:
        shutil.rmtree(world.evidence / "records" / "clearances")
        assert ways(world) == ["abandoned"], "this computer's record counts by itself"
    world.run("revoke")
    assert set(ways(world)) <= {None}


def test_a_torn_list_of_what_was_revoked_is_written_again_first(world: World) -> None:
    """No `next` named what writes it again, and each other command was refused or led to one that was."""
    _, _, receipt = world.verified()
    first = world.run("status", "--json").json["next"]
    assert world.run("approve", receipt).code == 0
    world.up()
    lose_the_list(world, writable=True)
    again = f"sweepctl revoke --stack {STACK} && sweepctl status --stack {STACK}"
    revoke = f"{again}    (then approvals count again)"
    assert world.run("status", "--json").json["next"][0] == revoke
    box = BoxContext(entry(world).facts(), "local")
    refused = may_end(BoxEnding(box, entry(world).approval, Observation(Existence.EXISTS)), full=False)
    assert dict(next_commands(box.facts, refused, stack=STACK))["next"] == revoke
    result = world.run("approve", receipt, "--json")
    assert (result.code, result.json["next"][0]) == (1, revoke)
    assert world.run("revoke").code == 0
    world.up()
    assert world.run("status", "--json").json["next"] == first


def test_a_revocation_is_in_the_evidence_though_this_computer_takes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.full()
    away = world.evidence.with_name("away")
    world.evidence.rename(away)
    assert world.run(*GIVE_UP).code == 0
    away.rename(world.evidence)

    def full_disk(_: object) -> None:
        raise SweepstackError("the decision could not be recorded: no space left")

    monkeypatch.setattr("sweepstack.cli.commands.revoke.record_decision", full_disk)
    result = world.run("revoke")
    assert result.code == 2
    assert "no space left" in result.out
    assert world.file.approval() is None
    assert ways(world) == [None], "revoked by the evidence"


def test_where_the_records_of_what_ran_are_lost_no_advice_is_refused_again(world: World) -> None:
    """b16: neither `finish` nor an approval of the box as empty leads out, and both ended in the same refusal."""
    first, *_ = world.verified()
    (world.evidence / "records" / "launches" / "box-0-g1.json").unlink()
    (first.root / "data" / "sweep" / "journal.jsonl").unlink()
    refused = world.run("approve", "--box", "box-0", "--reason", "x")
    assert refused.code == 1
    (following,) = [line for line in refused.err.splitlines() if line.startswith("next")]
    assert "data/box-0" in following


@pytest.mark.parametrize("lost", ["a birth record", "the evidence's disk", "the stack file's disk"])
def test_where_finish_would_be_refused_status_names_the_way_out_beside_finish(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Else a person tries `finish`, which is refused, and is one command further from the end."""
    world.full()
    assert not any("data/" in way for way in world.run("status", "--json").json["next"]), "nothing is in its way"
    if lost == "a birth record":
        birth = next((world.evidence / "records" / "births").iterdir())
        birth.write_bytes(birth.read_bytes()[:40])
    else:
        read_only = world.evidence if lost == "the evidence's disk" else world.file.path.parent
        monkeypatch.setattr(
            os, "access", lambda path, *_: path != read_only
        )  # root may write into a folder of mode 0555
    shown = world.run("status", "--json").json
    first, second = shown["next"]
    assert first.startswith(f"sweepctl finish --stack {STACK} ")
    assert second.startswith(f"sweepctl give-up --stack {STACK} data/box-0 data/box-1 --reason ")
    assert f"&& {DESTROY} " in second
    words = {
        "a birth record": "is damaged",
        "the evidence's disk": f"{world.evidence} can't be written: nothing is pulled",
        "the stack file's disk": f"{world.file.shown} can't be written: no approval",
    }
    assert any(words[lost] in note for note in shown["notes"])


def test_where_no_approval_can_be_written_status_names_the_way_out_beside_approve(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.verified()
    folder = world.file.path.parent
    monkeypatch.setattr(os, "access", lambda path, *_: path != folder)
    first, second = world.run("status", "--json").json["next"]
    assert first == f"sweepctl approve --stack {STACK}"
    assert second.startswith(f"sweepctl give-up --stack {STACK} data/box-0 data/box-1 --reason ")


def test_where_the_stack_file_does_not_read_status_puts_its_copy_back_before_finish(world: World) -> None:
    """`finish` says the same, after it was refused: one command further from the end."""
    world.full()
    keep_stack_file(world.uri, world.file.path)
    kept = world.file.path.read_bytes()
    world.file.path.write_bytes(kept[: len(kept) // 2] + b"\0")
    (way,) = world.run("status", "--json").json["next"]
    assert way.startswith(
        f"cp {world.evidence}/stack-files/{world.file.path.name} {world.file.path} && sweepctl finish "
    )


def test_another_box_or_sweep_is_not_meant(world: World) -> None:
    world.full()
    shutil.rmtree(world.evidence)
    assert world.run(*GIVE_UP).code == 0
    facts = entry(world).facts()
    for name, other in {"identity": "other", "account": "other/1", "native_id": "local-1", "name": "box-9"}.items():
        assert list(recorded_approvals(BoxContext(replace(facts, **{name: other}), "local"))) == [], name


@pytest.mark.parametrize("lost", [True, False], ids=["on_this_computer", "in_the_evidence"])
def test_a_later_approval_that_does_not_give_it_up_takes_the_record_back(world: World, lost: bool) -> None:
    """Else a destroy without an `up` would go by the abandonment, though its cells went on since."""
    _, _, receipt = world.verified()
    away = world.evidence.with_name("away")
    if lost:
        world.evidence.rename(away)
    assert world.run(*GIVE_UP).code == 0
    if lost:
        away.rename(world.evidence)
    assert ways(world) == ["abandoned"]
    assert world.run("approve", receipt, "--box", "box-1").code == 0
    assert ways(world) == ["abandoned"], "another box was approved"
    assert world.run("approve", receipt, "--box", "box-0").code == 0
    assert ways(world) == []


def test_only_what_is_given_up_is_on_record_of_a_mixed_word(world: World) -> None:
    """The receipt's part of it waits for `pulumi up`, as ever."""
    first, second, receipt = world.verified()
    second.start("lr0.9", attempt=2)
    result = world.run("give-up", receipt, "data/box-1", "--reason", "hangs", "--json")
    assert result.code == 0
    assert world.store.clearance(first.native_id) is None
    kept = world.store.clearance(second.native_id)
    assert kept is not None
    assert (kept.receipt, [one.box for one in kept.actions], len(kept.waive)) == (None, ["box-1"], 0)
    assert result.json["next"][0].startswith("pulumi up")


def test_one_line_accepts_every_cell_that_is_bad(world: World) -> None:
    """What was given already stands in it again: typed as it is, nothing is missing from it."""
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for name in ("lr0.1", "lr0.3", "lr0.9"):
        box.start(name)
        box.fail(name)
    assert world.run("pull").code in (0, 1)
    said = world.run("verify", "--json").json
    (accept,) = [line for line in said["next"] if "give-up" in line]
    assert re.findall(r"cell/(\S+)", accept) == ["lr0.1", "lr0.3", "lr0.9"]
    refused = world.run("give-up", said["receipt"], "cell/lr0.3", "--reason", "x")
    assert refused.code == 1
    line = next(line for line in refused.err.splitlines() if "cell/" in line)
    assert sorted(re.findall(r"cell/(\S+)", line)) == ["lr0.1", "lr0.3", "lr0.9"]
    words = re.findall(r"cell/\S+", line)
    assert world.run("give-up", said["receipt"], *words, "--reason", "y").code == 0
