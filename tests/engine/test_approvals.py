"""An approval stops holding when receipt, roster, cells or approval change: boxes are locked again.

Each time the next `up` ends with rc 0, shows `cleared → locked (reason)`, leaves the boxes alone, and the destroy that
would have gone through is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.engine.commands import Result, assert_failed, assert_refused, ok
from tests.engine.harness import Stack


def locked_again(stack: Stack, reason: str, *, box: str = "") -> Result:
    """`up` shows the lock with its reason and rc 0; `destroy` is refused and changes nothing, or nothing of `box`."""
    up = ok(stack.up("--diff"))
    assert re.search(r"clearance\s*:.*cleared.*=>.*locked", up.text), f"the diff does not show it\n{up}"
    assert re.search(reason, up.text.words, re.IGNORECASE), f"the reason is not shown: {reason}\n{up}"
    still_refused(stack, box=box, reason=reason)
    return up


def still_refused(stack: Stack, *, box: str = "", reason: str = "") -> None:
    """`destroy` looks for itself: refused with the reason. `box`: the other box may go, it is cleared on its own."""
    before = stack.snapshot(state=not box)
    result = stack.destroy()
    assert_refused(result)
    assert re.search(reason, result.text.words, re.IGNORECASE), f"the reason is not said: {reason}\n{result}"
    if box:
        now = stack.snapshot(state=False).files[stack.native_id(box)]
        assert now == before.files[stack.native_id(box)], str(result)
    else:
        stack.assert_unchanged(before, result)


def edit_approval(stack: Stack, **changed: object) -> None:
    """Changes fields of the approval in the stack config."""
    stack.edit_config(lambda sweep: sweep["approval"].update(changed))


def receipt_of(stack: Stack) -> str:
    """The receipt that the approval in the stack config names."""
    return str(stack.config()["approval"]["receipt"])


def test_receipt_edited(cleared: Stack) -> None:
    """A09: a receipt whose content is not what its name says is no receipt."""
    path = cleared.evidence / "receipts" / f"{receipt_of(cleared).removeprefix('sha256:')}.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"verified":4', '"verified":5'))
    locked_again(cleared, "receipt")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_receipt_removed(cleared: Stack) -> None:
    """A receipt that can't be found clears nothing."""
    (cleared.evidence / "receipts" / f"{receipt_of(cleared).removeprefix('sha256:')}.json").unlink()
    still_refused(cleared)
    locked_again(cleared, "receipt")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_receipt_of_another_sweep(cleared: Stack) -> None:
    """A09: a good receipt of another sweep, put where this one's are, clears nothing here."""
    folder = cleared.evidence / "receipts"
    document = json.loads((folder / f"{receipt_of(cleared).removeprefix('sha256:')}.json").read_text())
    document["identity"] = "another9x9"
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    foreign = hashlib.sha256(data).hexdigest()
    (folder / f"{foreign}.json").write_bytes(data)
    edit_approval(cleared, receipt=f"sha256:{foreign}")
    locked_again(cleared, "another sweep")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_approval_expired(cleared: Stack) -> None:
    """An approval ends by itself."""
    edit_approval(cleared, expires=(datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    locked_again(cleared, "expired")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_cell_added_after_the_approval(cleared: Stack) -> None:
    """A cell more on the roster is a cell that nobody has verified."""
    cleared.edit_config(lambda sweep: sweep["cells"].update({"add": [{"seed": 9}]}))
    locked_again(cleared, "roster")


def box_of(stack: Stack, cell: str) -> str:
    """The box that a cell was given to."""
    names = [str(birth["box"]) for birth in stack.births() if birth["native_id"] in stack.native_ids()]
    return next(box for box in names if cell in stack.cells_of(box))


def retry(stack: Stack, cell: str) -> None:
    """The cell ran once more on its box: what a runner leaves behind then, in manifest and journal, line by line."""
    folder, journal = stack.durable_cell(cell), stack.box_dir(box_of(stack, cell)) / "data" / "sweep" / "journal.jsonl"
    document = json.loads((folder / "manifest.json").read_text())
    document["attempt"] += 1
    (folder / "manifest.json").chmod(0o644)
    (folder / "manifest.json").write_bytes(canonical(document) + b"\n")
    lines = journal.read_bytes().splitlines()
    last = json.loads(lines[-1])
    began = {key: document[key] for key in ("attempt", "cell", "code", "config_digest")}
    sealed = {"manifest": f"sha256:{hashlib.sha256(canonical(document)).hexdigest()}", "bytes": 1}
    for details in ({"event": "cell-started", "argv": [], "slot": 0}, {"event": "cell-sealed", **sealed}):
        entry = {**began, **details, "seq": last["seq"] + 1, "time": last["time"], "prev": last["hash"]}
        last = {**entry, "hash": hashlib.sha256(canonical(entry)).hexdigest()}
        with journal.open("ab") as handle:
            handle.write(canonical(last) + b"\n")


def canonical(value: object) -> bytes:
    """Canonical JSON, as journals and manifests are written."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_cell_retried_after_the_approval(cleared: Stack) -> None:
    """A cell that ran once more is not the cell that was verified."""
    cell = cleared.cells[0]
    retry(cleared, cell)
    locked_again(cleared, "journal", box=box_of(cleared, cell))


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_approval_of_another_box(verified: Stack) -> None:
    """An approval of box-0 says nothing of box-1."""
    verified.approve("--box", "box-0")
    up = ok(verified.up("--diff"))
    assert "cleared by receipt" in up.text, str(up)
    box_1 = verified.native_id("box-1")
    result = verified.destroy()
    assert_refused(result)
    assert box_1 in verified.native_ids(), str(result)
    assert "does not name this box" in result.text or "not approved" in result.text, str(result)


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_approval_with_another_boxs_id(cleared: Stack) -> None:
    """An approval for box-0 by its native id is none for the box that is called box-1."""
    ids = {box: cleared.native_id(box) for box in cleared.boxes}

    def swap(sweep: dict[str, Any]) -> None:
        for action in sweep["approval"]["actions"]:
            action["native_id"] = ids["box-1" if action["box"] == "box-0" else "box-0"]

    cleared.edit_config(swap)
    locked_again(cleared, "the approval is for local-")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_approval_of_another_verb(cleared: Stack) -> None:
    """Allowing a stop does not allow a destroy."""

    def stop(sweep: dict[str, Any]) -> None:
        for action in sweep["approval"]["actions"]:
            action["verb"] = "stop"

    cleared.edit_config(stop)
    locked_again(cleared, "stop, not destroy|verb")


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_cleared.py
def test_waiver_slipped_into_the_approval(cleared: Stack) -> None:
    """Waivers are part of what was approved: one that is added afterwards voids it."""
    edit_approval(cleared, waive=[{"cell": cleared.cells[0], "reason": "nobody looked"}])
    locked_again(cleared, "waiver")


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_identity.py; a lock that shows: test_receipt_edited
def test_approval_taken_out(cleared: Stack) -> None:
    """Deleting the approval from the stack config locks the boxes again."""
    cleared.edit_config(lambda sweep: sweep.pop("approval"))
    up = ok(cleared.up("--diff"))
    assert re.search(r"clearance\s*:.*cleared.*=>.*locked", up.text), str(up)
    still_refused(cleared)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_create.py
def test_approval_taken_out_while_the_state_had_lost_the_box(cleared: Stack) -> None:
    """A box that is adopted again without an approval is locked: what once cleared it is over."""
    for box in cleared.boxes:
        cleared.edit_in_state("delete", cleared.urn("Box", box), "--target-dependents")
    cleared.edit_config(lambda sweep: sweep.pop("approval"))
    ok(cleared.up())
    assert len(cleared.births()) == 2
    still_refused(cleared)


@pytest.mark.proof  # an approval that is taken out, by another way
def test_want_gone_taken_back_before_it_happened(verified: Stack) -> None:
    """Approved and on its way out, then taken back with its approval: the box is locked as if nothing had been said."""
    verified.approve("--box", "box-1")
    verified.edit_config(lambda sweep: sweep["boxes"].update({"box-1": {"want": "gone"}}))
    left_out = [word for kind in ("Gate", "Queue", "Box") for word in ("--exclude", verified.urn(kind, "box-1"))]
    ok(verified.up(*left_out))
    assert len(verified.native_ids()) == 2

    def take_back(sweep: dict[str, Any]) -> None:
        sweep["boxes"]["box-1"] = {"want": "running"}
        del sweep["approval"]

    verified.edit_config(take_back)
    ok(verified.up())
    still_refused(verified)


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_other_ways.py
def test_retry_in_the_middle_of_a_teardown(cleared: Stack) -> None:
    """A teardown that has begun may finish what was approved, and not take along what ran on a box since."""
    cell = cleared.cells_of("box-1")[0]
    urns = [word for kind in ("Gate", "Queue", "Box") for word in ("--target", cleared.urn(kind, "box-0"))]
    ok(cleared.destroy(*urns))
    assert cleared.native_ids() == [cleared.native_id("box-1")]
    retry(cleared, cell)
    still_refused(cleared, reason="journal")


def test_c01_not_verified_and_not_approved(verified: Stack) -> None:
    """Verified and not approved: refused for that. Not verified: test_by_command.py."""
    still_refused(verified, reason="not approved")


@pytest.mark.proof  # tests/unit/cli/test_approve.py; refused: tests/unit/teardown/test_cleared.py
def test_c01_an_approval_of_what_was_never_verified(finished: Stack) -> None:
    """Pulled and not verified: refused with whatever approval."""
    verified = finished
    ok(verified.sweepctl("pull"))
    approve = verified.sweepctl("approve", "sha256:" + "1" * 64)
    assert approve.rc != 0, str(approve)
    assert "is not in" in " ".join(approve.err.split()), str(approve)
    still_refused(verified, reason="0 of 2 cells verified")


@pytest.mark.proof  # word by word: tests/unit/cli/test_approve.py
def test_only_a_person_approves(verified: Stack) -> None:
    """Without a terminal, an exact digest is needed: `--yes`, a part of it, or nothing is no word."""
    receipt = verified.verify()["receipt"]
    text = verified.config_file.read_text()
    for words, said in {
        (): "there is no terminal to ask at: to approve, give the receipt's whole digest",
        ("--yes",): "No such option: --yes",
        (receipt[:20],): f"{receipt[:20]} is not a whole digest",
        ("sha256:" + "0" * 64,): "the receipt sha256:" + "0" * 64 + " is not in",
    }.items():
        result = verified.sweepctl("approve", *words)
        assert_failed(result, said)
        assert verified.config_file.read_text() == text, str(result)
    for answer in ("no", "y", "", "YES!"):
        asked = [("?", f"{answer}\r")]
        result = verified.terminal("sweepctl", "approve", "--stack", verified.name, answers=asked)
        assert_failed(result, "not approved; nothing was written")
        assert verified.config_file.read_text() == text, str(result)


@pytest.mark.proof  # tests/unit/config/test_mistakes.py, unit/provider/test_dispatch.py
def test_malformed_approval_is_an_error_in_the_config(cleared: Stack) -> None:
    """An approval that does not read is a mistake in a file, with file, line and key; nothing changes."""
    before = cleared.snapshot()
    edit_approval(cleared, receipt="yes")
    result = cleared.up()
    assert result.rc != 0, str(result)
    assert "Pulumi.t.yaml" in result.text, str(result)
    assert "receipt" in result.text, str(result)
    cleared.assert_unchanged(before, result)


def evidence_changes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Stack], None]:
    """Changes the pulled copy of the first cell's file."""

    def apply(stack: Stack) -> None:
        path = stack.evidence / "cells" / stack.cells[0] / name
        path.chmod(0o644)
        path.write_bytes(change(path.read_bytes()))

    return apply


@pytest.mark.proof  # with its old size and time: the next test; an `up` that shows a lock: test_receipt_edited
def test_copy_damaged_after_the_approval(cleared: Stack) -> None:
    """The verified copy is what lets the box go: when it changes, the box is locked, and says which cell."""
    evidence_changes("model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1]))(cleared)
    locked_again(cleared, cleared.cells[0], box=box_of(cleared, cleared.cells[0]))


@pytest.mark.proof  # tests/unit/teardown/test_cleared.py, unit/provider/test_box_end.py
def test_copy_damaged_with_its_old_size_and_time(cleared: Stack) -> None:
    """A09: a change that size and time don't show is found by the destroy, which reads every byte again."""
    path = cleared.evidence / "cells" / cleared.cells[0] / "model.safetensors"
    status = path.stat()
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    still_refused(cleared, box=box_of(cleared, cleared.cells[0]), reason=cleared.cells[0])


@pytest.mark.proof
def test_approved_again(cleared: Stack) -> None:
    """After the lock, the same three commands as before clear the boxes again."""
    retry(cleared, cleared.cells[0])
    ok(cleared.up())
    ok(cleared.sweepctl("pull"))
    cleared.approve()
    ok(cleared.up())
    ok(cleared.destroy())
    assert cleared.native_ids() == []
