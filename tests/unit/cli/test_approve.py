"""`sweepctl approve`: what counts as an approval, what is refused, what is written."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import timedelta

import pytest

from sweepstack.cli.app import load_command
from sweepstack.cli.commands.approve.options import BOX, CELL, DATA, UNCLAIMED, pair_reasons
from sweepstack.config.edit import stack_file
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unsure
from sweepstack.platforms.local.__main__ import main as claim
from sweepstack.status.engine.state import parse_export
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.revocation import revocation_problem
from tests.screens import too_long
from tests.unit.cli.support import CODE, STACK, World


def untouched(world: World, *arguments: str, types: str | None = None, verb: str = "approve") -> str:
    """Runs the verb, proves that it refused and wrote nothing, and returns what it said."""
    before = world.file.path.read_bytes()
    result = world.run(verb, *arguments, types=types)
    assert result.code == 1, result
    assert world.file.path.read_bytes() == before
    return result.err


def approval(world: World) -> Approval:
    written = world.file.approval()
    assert written is not None
    return written


def test_naming_the_whole_digest_is_a_persons_word(world: World) -> None:
    first, second, receipt = world.verified()
    before = world.file.path.read_text()
    result = world.run("approve", receipt, "--expires", "12h", "--json")
    assert result.code == 0
    word = approval(world)
    assert word.receipt == receipt
    assert {(action.verb, action.box, action.native_id) for action in word.actions} == {
        ("destroy", "box-0", first.native_id),
        ("destroy", "box-1", second.native_id),
    }
    assert word.expires - word.at == timedelta(hours=12)
    assert "@" in word.by
    assert world.file.path.read_text().startswith(before), "appended as the last key; comments and order kept"
    assert result.json["approved"] == ["box-0", "box-1"]
    assert result.json["next"][0].startswith(f"pulumi up --stack {STACK}")


def test_a_stack_file_on_a_disk_that_is_read_only_names_the_way_without_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is typed, with the boxes' names: three commands lead to the end from every state."""
    _, _, receipt = world.verified()

    def read_only(*_: object, **__: object) -> None:  # root may write into a folder of mode 0555
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(stack_file, "write_atomically", read_only)
    result = world.run("approve", receipt, "--json")
    assert result.code == 1
    assert "can't be written: Read-only file system. It was left as it is" in result.err
    way = f'sweepctl give-up --stack {STACK} data/box-0 data/box-1 --reason "…" && pulumi destroy --stack {STACK}'
    assert result.json["next"] == [f"{way}    (where it stays so)"]


def test_the_up_of_an_approval_that_would_rent_a_box_says_what_to_set_first(world: World) -> None:
    *_, receipt = world.verified()
    world.monkeypatch.setattr("sweepstack.cli.commands.approve.preview.unrented", lambda *_: ("box-2", "box-3"))
    up, destroy = world.run("approve", receipt, "--json").json["next"]
    wants = "after boxes.box-2.want, boxes.box-3.want is set to gone, or it rents box-2, box-3: clears the boxes"
    assert up == f"pulumi up --stack {STACK}    ({wants})"
    assert destroy == f"pulumi destroy --stack {STACK}"
    world.up()
    seen = world.run("status", "--json").json
    assert [(gate["state"], gate["receipt"], gate["reasons"]) for gate in seen["gates"]] == [
        ("cleared", receipt, []),
        ("cleared", receipt, []),
    ]
    assert seen["next"] == [f"pulumi destroy --stack {STACK}"]


def test_a_second_word_for_the_same_receipt_keeps_the_first(world: World) -> None:
    first, second, receipt = world.verified()
    world.run("approve", receipt, "--box", "box-0", "--expires", "2h")
    world.run("approve", receipt, "--box", "box-1")
    word = approval(world)
    assert {action.native_id for action in word.actions} == {first.native_id, second.native_id}
    assert word.expires - word.at <= timedelta(hours=2), "the earlier word holds no longer than it was given for"
    world.run("give-up", "data/box-1", "--reason", "broken")
    word = approval(world)
    assert word.receipt == receipt
    assert {action.native_id for action in word.actions} == {first.native_id, second.native_id}
    assert [entry.native_id for entry in word.abandon] == [second.native_id]


def test_an_earlier_word_for_another_receipt_goes(world: World) -> None:
    _, second, receipt = world.verified()
    world.run("approve", receipt, "--box", "box-0")
    second.seal("lr0.9", attempt=2)
    world.run("pull")
    later = world.run("verify", "--json").json["receipt"]
    assert later != receipt
    world.run("approve", later, "--box", "box-1")
    word = approval(world)
    assert word.receipt == later
    assert [action.native_id for action in word.actions] == [second.native_id], "box-0 was approved by another receipt"


def test_a_receipt_that_is_not_of_these_boxes_now_is_refused(world: World) -> None:
    """It was edited, is for another roster, or is from before a journal went on."""
    first, _, receipt = world.verified()
    path = world.evidence / "receipts" / f"{receipt.removeprefix('sha256:')}.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"verified":3', b'"verified":9'))
    assert "edited or damaged" in untouched(world, receipt)
    path.write_bytes(whole)
    up_roster = world.up_roster
    world.lrs = "[0.1, 0.3, 0.9, 2.5]"
    world.write_stack_file()
    assert "other cells than the receipt" in untouched(world, receipt)
    world.up_roster = world.file_roster()
    assert "roster changed" in untouched(world, receipt)
    world.lrs, world.up_roster = "[0.1, 0.3, 0.9]", up_roster
    world.write_stack_file()
    first.log("runner-started", pid=1)
    said = untouched(world, receipt)
    assert all(words in said for words in ("box-0", "went on after the receipt", "sweepctl finish"))


def test_cells_that_were_not_pulled_are_pulled_before_any_is_given_up(world: World) -> None:
    """Said before, as the first way: let them all go."""
    world.full()
    world.run("verify")
    ways = [line for line in untouched(world).splitlines() if line.startswith("next")]
    assert ways[0].startswith(f"next   sweepctl pull --stack {STACK} --verify")
    assert "cell/lr0.1" in ways[1]


def test_asked_at_a_terminal(world: World) -> None:
    *_, receipt = world.verified()
    for answer in ("y", "", "no", receipt[:8]):
        untouched(world, types=answer)
    result = world.run("approve", types="yes")
    assert result.code == 0
    assert receipt in result.out
    assert "$0.50/h" in result.out
    assert "scratch, data" in result.out
    assert approval(world).receipt == receipt


# A box on which nothing was launched


def test_nothing_launched_needs_no_receipt(world: World) -> None:
    box = world.add()
    assert 'data/box-0 --reason "nothing was launched"' in untouched(world, "--box", "box-0")
    untouched(world, "--box", "box-0", types="y")
    assert world.run("approve", "--box", "box-0", types="yes").code == 0
    word = approval(world)
    assert word.receipt is None
    assert [action.native_id for action in word.actions] == [box.native_id]
    assert word.abandon == ()


def test_naming_the_box_with_a_reason_is_a_word_where_nothing_was_launched(world: World) -> None:
    first, second = world.add("box-0"), world.add("box-1")
    assert world.run("approve", "--box", "box-0", "--reason", "never ran").code == 0
    word = approval(world)
    assert [action.native_id for action in word.actions] == [first.native_id]
    assert word.abandon == ()
    second.launch("lr0.1")
    untouched(world, "--box", "box-1", "--reason", "a drill")
    second.seal("lr0.1")
    world.run("pull")
    world.run("verify")
    untouched(world, "--box", "box-1", "--reason", "a drill")


def test_nothing_launched_but_a_journal_is_there(world: World) -> None:
    box = world.add()
    box.start("lr0.1")
    assert "tampered" in untouched(world, "--box", "box-0", types="yes")


# Abandoning


def test_abandoning_at_a_terminal_is_asked(world: World) -> None:
    world.full()
    untouched(world, "data/box-0", "--reason", "x", types="yes", verb="give-up")
    assert world.run("give-up", "data/box-0", "--reason", "x", types="box-0").code == 0


def test_abandoning_when_the_evidence_is_gone(world: World) -> None:
    first, _ = world.full()
    shutil.rmtree(world.evidence)
    assert world.run("give-up", "data/box-0", "--reason", "the disk died").code == 0
    box = parse_export(STACK, world.export()).boxes[0]
    seen = Observation(Existence.EXISTS)
    assert may_end(BoxEnding(BoxContext(box.facts(), box.adapter), approval(world), seen), full=True).way == "abandoned"
    assert first.native_id == box.native_id


def test_one_abandoned_the_others_cleared(world: World) -> None:
    first, second, receipt = world.verified()
    second.start("lr0.9", attempt=2)
    arguments = (receipt, "data/box-1", "--reason", "hangs")
    assert world.run("give-up", *arguments).code == 0
    word = approval(world)
    assert {action.native_id for action in word.actions} == {first.native_id, second.native_id}
    world.up()
    gates = world.run("status", "--json").json["gates"]
    assert [gate["way"] for gate in gates] == ["cleared", "abandoned"]


def test_a_box_that_is_gone_needs_no_word(world: World) -> None:
    first, second, receipt = world.verified()
    first.vanish()
    assert world.run("approve", receipt).code == 0
    assert [action.native_id for action in approval(world).actions] == [second.native_id]
    assert world.run("approve", receipt, "--box", "box-0").code == 0


def test_a_box_of_another_account_is_not_approved(world: World) -> None:
    *_, receipt = world.verified()
    world.move_registry()
    world.platform.account()  # another registry: another account
    said = untouched(world, receipt)
    assert "account" in said
    said = untouched(world, "data/box-0", "--reason", "lost", verb="give-up")
    next_ = said[said.index("next") :]
    assert "python -m sweepstack.platforms.local --also " in next_, "what helps with an account"
    assert "data/" not in next_, "that has just failed"
    ways = world.run("status", "--json", fresh=False).json["next"]  # it advised what is refused
    assert ways[0].startswith("sweepctl status"), "with the account of the box: that calls nothing gone"
    assert "python -m sweepstack.platforms.local --also " in ways[-1]
    assert ways[-1].endswith("    (only if its registry here was lost: what is not here then counts as gone)")
    assert not [way for way in ways if "data/" in way]
    assert claim(["--also", world.boxes[0].record.account]) == 0
    assert world.run("status", fresh=False).code != 2, "that way leads on"


def test_a_cell_that_only_the_box_knows_is_named_and_locks(world: World) -> None:
    """Another backend over a copy of this evidence ran it there."""
    first, *_ = world.verified()
    digest = "sha256:" + "7" * 64
    first.log("cell-started", cell="seed5", attempt=1, config_digest=digest, code=CODE, argv=["x"], slot=0)
    first.log("cell-sealed", cell="seed5", attempt=1, config_digest=digest, manifest=digest, bytes=7)
    receipt = world.run("verify", "--json").json["receipt"]
    said = untouched(world, receipt)
    assert "seed5 ran on this box by its journal, and neither the receipt nor the launch record has it" in said
    assert f"{receipt} cell/seed5" in said
    assert world.run("give-up", receipt, "cell/seed5", "--reason", "not ours").code == 0


def test_a_finished_cell_that_was_dropped_is_named(world: World) -> None:
    first, *_ = world.verified()
    name = next(iter(first.cells))
    launch = world.store.launch("box-0", 1)
    assert launch is not None
    left = {key: digest for key, digest in launch.cells.items() if key != name}
    world.store.write_launch(launch.model_copy(update={"cells": left, "dropped": {name: "too slow"}}))
    world.write_stack_file(drop=f"{{{name}: too slow}}")
    world.up()
    receipt = world.run("verify", "--json").json["receipt"]
    result = world.run("approve", receipt)
    assert f"{name} was sealed on box-0 and dropped later: no copy of it is verified" in result.out, result


# Taking it back


def test_revoking_takes_everything_back(world: World) -> None:
    first, second, receipt = world.verified()
    before = world.file.path.read_bytes()
    world.run("approve", receipt)
    world.up()
    world.open_teardown(receipt, first, second)
    world.store.write_clearance(first.native_id, approval(world))
    result = world.run("revoke", "--json")
    assert result.code == 0
    assert result.json["removed"] is True
    assert result.json["teardown_closed"] is True
    assert world.file.path.read_bytes() == before
    assert world.store.teardown() is None
    assert world.store.clearance(first.native_id) is None
    assert world.run("revoke").code == 0, "idempotent"


def test_what_was_revoked_ends_nothing_though_the_state_still_holds_it(world: World) -> None:
    *_, receipt = world.verified()
    world.run("approve", receipt)
    world.up()
    assert world.run("status", "--json").json["gates"][0]["state"] == "cleared"
    assert "on record as revoked" in world.run("revoke").out
    gates = world.run("status", "--json").json["gates"]
    assert [gate["state"] for gate in gates] == ["locked", "locked"]
    assert "the approval was revoked at" in gates[0]["reasons"][0]
    assert world.run("approve", receipt).code == 0, "in the same second, too"
    world.up()
    assert world.run("status", "--json").json["gates"][0]["state"] == "cleared"


def test_a_revocation_that_cannot_be_recorded_says_so(world: World) -> None:
    *_, receipt = world.verified()
    world.run("approve", receipt)
    world.store.objects.remove("sweep.json")
    result = world.run("revoke")
    assert result.code == 2
    assert "obeys the approval in the engine's state until `pulumi up`" in result.out
    assert world.file.approval() is None


def test_revoking_needs_no_backend(world: World) -> None:
    *_, receipt = world.verified()
    world.run("approve", receipt)
    word = approval(world)
    (world.engine / "error").write_text("error: the backend does not answer")
    assert world.run("revoke").code == 0
    (action, *_) = word.actions
    store = world.store
    assert "was revoked at" in revocation_problem(store, word, action.native_id, store.marker.identity, given_up=False)


def test_a_malformed_approval_can_be_revoked(world: World) -> None:
    world.verified()
    before = world.file.path.read_text()
    world.file.path.write_text(before + "    approval: {receipt: 7}\n")
    result = world.run("status", "--json")
    assert "approval" in " ".join(result.json["notes"])
    assert world.run("revoke").code == 0
    assert world.file.path.read_text() == before


# Bytes that belong to no cell


def test_unclaimed_bytes_are_let_go_by_name(world: World) -> None:
    first, second, receipt = world.verified()
    note = first.root / "data" / "notes.bin"
    note.touch()
    os.truncate(note, 200_000_000)
    refused = world.run("approve", receipt)
    assert refused.code == 1
    assert "1 file, 200.0 MB on it belong to no sealed cell and would die: data/notes.bin" in refused.err
    assert 'unclaimed/box-0 --reason "…"' in refused.err
    why = world.run("give-up", receipt, "unclaimed/box-0")
    assert why.code == 2
    assert "unclaimed/box-0 needs a reason" in why.err
    other = world.run("give-up", receipt, "unclaimed/box-7", "--reason", "x")
    assert other.code == 1
    assert "there is no box box-7 in the state" in other.err
    let_go = world.run("give-up", receipt, "unclaimed/box-0", "--reason", "a cache")
    assert let_go.code == 0
    assert "unclaimed box-0: 1 file, 200.0 MB: data/notes.bin 200.0 MB" in let_go.out
    assert "box-0: may be lost: a cache" in let_go.out
    written = world.file.approval()
    assert written is not None
    (waiver,) = written.unclaimed
    assert (waiver.native_id, waiver.files, waiver.bytes) == (first.native_id, 1, 200_000_000)
    world.up()
    gates = world.run("status", "--json").json["gates"]
    assert [gate["state"] for gate in gates] == ["cleared", "cleared"]
    assert gates[0]["unclaimed"]["bytes"] == 200_000_000
    kept = world.run("approve", receipt, "--box", "box-1")
    assert kept.code == 0
    assert world.file.approval().unclaimed == written.unclaimed  # type: ignore[union-attr]
    os.truncate(note, 200_000_001)
    assert [gate["state"] for gate in world.run("status", "--json").json["gates"]] == ["locked", "cleared"]
    assert second.native_id


# The order of options


def paired(verb: str, *line: str) -> dict[str, dict[str, str]]:
    """What the reasons of this line belong to."""
    return pair_reasons(load_command(verb).make_context(verb, list(line), resilient_parsing=True).meta["typed"])


def test_reasons_belong_to_what_stands_before_them() -> None:
    line = ["cell/a", "--reason=one", "--box", "x", "data/b", "cell/c", "--reason", "two"]
    found = paired("give-up", *line)
    assert (found[CELL], found[DATA], found[BOX]) == ({"a": "one", "c": "two"}, {"b": "two"}, {})
    assert paired("approve", "--box", "a", "--box=b", "--reason", "never ran")[BOX] == dict.fromkeys("ab", "never ran")
    both = ["cell/a", "unclaimed/x", "--reason", "why", "unclaimed/y", "--reason=caches"]
    found = paired("give-up", *both)
    assert (found[CELL], found[UNCLAIMED]) == ({"a": "why"}, {"x": "why", "y": "caches"})
    assert paired("give-up", "--stack", "data/b", "cell/a", "--reason", "x")[DATA] == {}, "a stack's name"


@pytest.mark.parametrize(
    "line",
    [
        ["cell/a", "--reason=x", "cell/b"],
        ["--reason=x", "cell/a", "cell/b"],
        ["--reason=x"],
        ["cell/a", "--reason= "],
        ["cell/a", "cell/a", "--reason=x"],
        ["cell/a", "--reason", "x", "cell/a", "--reason", "y"],
        ["--reason=…", "cell/a"],
        ["unclaimed/x"],
    ],
)
def test_reasons_that_belong_to_nothing(line: list[str]) -> None:
    with pytest.raises(Unsure):
        paired("give-up", *line)


def test_it_says_what_dies_that_is_in_no_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.evidence.pull.MOST_BYTES", 1000)
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    for name in ("lr0.1", "lr0.9"):
        box.seal(name)
    box.start("lr0.3", log="boom\n")
    (box.root / "data/sweep/cells/lr0.3/1/out/model.bin").write_bytes(b"m" * 5000)
    box.fail("lr0.3")
    given_up = world.run("give-up", "data/box-0", "--reason", "x")
    assert "in no copy box-0: all that lr0.3 left without a seal, logs too" in given_up.out
    world.run("revoke")
    world.run("pull")
    receipt = world.run("verify", "--json").json["receipt"]
    waived = world.run("give-up", receipt, "cell/lr0.3", "--reason", "x")
    assert waived.code == 0, waived
    assert (
        "in no copy box-0: 1 file, 5.0 kB, too large, too many, or not readable: lr0.3 out/model.bin 5.0 kB"
        in waived.out
    )


def test_its_questions_fit_into_80_columns(world: World) -> None:
    first, _, _ = world.verified()
    asked = world.run("give-up", "data/box-0", "--reason", "a reason that is somewhat longer " * 4, types="no")
    for said in (asked, world.run("approve", types="no")):
        assert "Type " in said.err
        assert not too_long(said.err.replace(": error:", ":\nerror:")), said.err
        assert not too_long(said.out), said.out
    assert first.name in asked.out


def test_a_box_that_cannot_be_read_is_not_waited_for(world: World) -> None:
    """`sweepctl wait` waits an outage out, and this one never ends."""
    first = world.add("box-0")
    first.launch("lr0.1", "lr0.3")
    first.seal("lr0.1")
    first.start("lr0.3")
    world.run("pull")
    receipt = world.run("verify", "--json").json["receipt"]
    journal = first.root / box_layout.JOURNAL
    journal.unlink()
    journal.mkdir()
    said = untouched(world, receipt)
    assert "sweepctl wait" not in said
    assert "data/box-0" in said
