"""Completeness and evidence (A), through pulumi and sweepctl on the real engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import Result, assert_refused, ok
from tests.engine.harness import Stack

Make = Callable[..., Stack]


def states(verify: Result) -> dict[str, str]:
    """What `verify --json` says of each cell."""
    return {cell["name"]: cell["state"] for cell in verify.json()["cells"]}


def refused(stack: Stack, *cells: str) -> Result:
    """A destroy that names the cells and changes nothing (what its refresh notes in the state is no change)."""
    before = stack.snapshot(state=False)
    result = stack.destroy()
    assert_refused(result, cells)
    stack.assert_unchanged(before, result, state=False)
    return result


def test_a01_zero_byte_checkpoint(finished: Stack) -> None:
    """Every log says success, one checkpoint is empty on the durable tier: damaged, named, refused; others are ok."""
    (finished.durable_cell("seed1") / "model.safetensors").write_bytes(b"")
    pull = finished.sweepctl("pull")
    assert pull.rc == 1, str(pull)
    assert "seed1" in pull.text, str(pull)
    assert "model.safetensors" in pull.text, str(pull)
    result = finished.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    found = states(result)
    assert found.pop("seed1") in ("damaged", "missing")
    assert set(found.values()) == {"verified"}
    refused(finished, "seed1")


def spoiled(make_stack: Make) -> Stack:
    """Four cells that all ended with exit 0 and were sealed; three of them left something that does not load."""
    stack = make_stack(cells=("seed0", "seed1", "seed2", "seed3"), boxes=("box-0",))
    stack.tell("nan", "seed1")
    stack.tell("wrongkey", "seed2")
    script = stack.job / "train.py"
    cut = '\nif arguments.seed == 3:\n    os.truncate(arguments.out / "model.safetensors", 700)\n'
    script.write_text(script.read_text() + cut)  # the hash that the box takes is that of the truncated file
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    return stack


def test_a02_size_and_hash_are_right_and_it_does_not_load(make_stack: Make) -> None:
    """A hash proves identity, never content: not verified, by their names and reasons, and the box stays."""
    stack = spoiled(make_stack)
    result = stack.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    document = result.json()
    assert document["verified"] == 1
    damaged = {cell["name"]: " ".join(cell["reasons"]) for cell in document["cells"] if cell["state"] == "damaged"}
    assert set(damaged) == {"seed1", "seed2", "seed3"}
    for cell, why in (("seed1", "finite"), ("seed2", "w1"), ("seed3", "")):
        assert "model.safetensors" in damaged[cell]
        assert why in damaged[cell]
    assert stack.sweepctl("approve", "--receipt", document["receipt"]).rc != 0
    refused(stack, *damaged)


def test_a03_yesterday_s_success_is_not_today_s(make_stack: Make) -> None:
    """The log says that all is done, of an earlier queue: running while something runs, dead when its runner is."""
    stack = make_stack(cells=("seed0",), boxes=("box-0",))
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    with (stack.box_dir("box-0") / "data/sweep/runner.log").open("a") as log:
        log.write("QUEUE DONE\n")
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update({"seed": [0, 1, 2]}))
    stack.cells = ("seed0", "seed1", "seed2")
    stack.hold("seed1")
    ok(stack.up())
    stack.wait_for(lambda: "seed1" in stack.started(), "seed1 to start")
    document = stack.sweepctl("status", "--json").json()
    assert {cell["name"]: cell["state"] for cell in document["cells"]} == {
        "seed0": "sealed",
        "seed1": "running",
        "seed2": "pending",
    }
    refused(stack, "seed1", "seed2")
    stack.kill_box(stack.native_id("box-0"))
    document = stack.sweepctl("status", "--json").json()
    assert {cell["name"]: cell["state"] for cell in document["cells"]}["seed1"] == "failed"
    refused(stack, "seed1", "seed2")


def test_a04_all_done_and_one_cell_never_ran(make_stack: Make) -> None:
    """A box went away in the middle, every surviving log is clean: the roster says which cell is missing."""
    stack = make_stack()
    stack.hold(*stack.cells)
    ok(stack.up())
    missing = stack.cells_of("box-1")[-1]
    stack.release()
    stack.hold(missing)
    stack.wait_done(but=(missing,))
    stack.sweepctl("pull")
    stack.vanish("box-1")
    stack.wait_idle()
    stack.sweepctl("pull")
    result = stack.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    found = states(result)
    assert found.pop(missing) != "verified"
    assert set(found.values()) == {"verified"}
    approve = stack.sweepctl("approve", "--receipt", result.json()["receipt"])
    assert f"not there {missing}" in approve.text, str(approve)  # box-0's own cells are safe: it may go, knowingly
    ok(stack.sweepctl("approve", "--revoke"))
    stack.release()
    ok(stack.up())  # the other box, which has room for it, takes exactly that cell over, with the identical config
    stack.wait_done()
    stack.wait_idle()
    assert stack.started("box-0")[-1:] == [missing]
    assert stack.native_ids() == [stack.native_id("box-0")]
    ok(stack.sweepctl("pull"))
    ok(stack.sweepctl("verify"))


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ([{"seed": 1}, {"seed": 2}, {"seed": 1}], ("seed1",)),
        ([{"tag": "a"}, {"tag": "A"}], ("taga", "tagA")),
    ],
    ids=["equal", "by case"],
)
def test_a05_duplicate_cell_names(make_stack: Make, cells: list[dict[str, object]], named: tuple[str, ...]) -> None:
    """Refused at preview with both sources, before anything exists."""
    stack = make_stack()
    stack.edit_config(lambda sweep: sweep.update({"cells": {"list": cells}}))
    stack.edit_config(lambda sweep: sweep["job"].update({"run": "python train.py --seed 1 --out {out}"}))
    result = stack.pulumi("preview")
    assert result.rc != 0, str(result)
    for name in named:
        assert name in result.text, str(result)
    assert "cells.list[0]" in result.text, str(result)
    assert f"cells.list[{len(cells) - 1}]" in result.text, str(result)
    assert stack.native_ids() == []
    assert not stack.evidence.exists()


def test_a06_nothing_to_verify_is_no_success(make_stack: Make) -> None:
    """No results at all: non-zero, no "0 of 0", no manifest, no receipt. And a roster of no cells is refused."""
    stack = make_stack()
    stack.hold(*stack.cells)
    ok(stack.up())
    for words in (("verify",), ("approve", "--receipt", "sha256:" + "0" * 64)):
        result = stack.sweepctl(*words)
        assert result.rc != 0, str(result)
        assert "0 of 0" not in result.text, str(result)
        assert "0/0" not in result.text, str(result)
    assert not list(stack.evidence.glob("cells/*"))
    stack.edit_config(lambda sweep: sweep.update({"cells": {"grid": {"seed": []}}}))
    result = stack.pulumi("preview")
    assert result.rc != 0, str(result)
    assert "cells" in result.text, str(result)


def test_a09_receipt_forged_or_stale(verified: Stack) -> None:
    """An edited receipt and one of another sweep clear nothing; a fresh verify clears what is really there."""
    verified.approve()
    ok(verified.up())
    receipts = verified.evidence / "receipts"
    (path,) = receipts.glob("*.json")
    whole = path.read_bytes()
    for forged in (
        whole.replace(b'"verified":4', b'"verified":9'),
        whole.replace(json.loads(whole)["identity"].encode(), b"zzzzzzzzzz"),
    ):
        assert forged != whole
        path.write_bytes(forged)
        refused(verified)
    path.write_bytes(whole)
    copy = verified.evidence / "cells" / "seed2" / "model.safetensors"
    stamp = copy.stat()
    copy.write_bytes(bytes([copy.read_bytes()[0] ^ 1]) + copy.read_bytes()[1:])
    os.utime(copy, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the quick look is fooled; the delete is not
    result = verified.destroy()
    assert result.rc != 0, str(result)
    assert len(verified.native_ids()) == 2, str(result)
    copy.unlink()
    ok(verified.sweepctl("pull"))
    verified.approve()
    ok(verified.up())
    ok(verified.destroy())


def test_b07_script_changed_under_a_live_run(make_stack: Make) -> None:
    """New code never touches what runs: the live files stay, and appended cells take the new ones from beside them."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    pid = stack.runner_pid("box-0")
    live = live_code(stack)
    (stack.job / "train.py").write_text((stack.job / "train.py").read_text() + "\n# changed\n")
    stack.up()  # refused or not: it must not touch what runs
    assert {path: data for path, data in live_code(stack).items() if path in live} == live
    assert stack.runner_pid("box-0") == pid
    stack.edit_config(lambda sweep: sweep["cells"]["grid"]["seed"].append(2))
    stack.edit_config(lambda sweep: sweep["job"].update({"mixing": "allow"}))
    ok(stack.up())
    assert {path: data for path, data in live_code(stack).items() if path in live} == live
    assert stack.runner_pid("box-0") == pid
    assert "seed2" in stack.cells_of("box-0")
    stack.release()
    stack.cells = (*stack.cells, "seed2")
    stack.wait_done()


def live_code(stack: Stack) -> dict[Path, bytes]:
    """The shipped files on the box, all versions, and the runner's own."""
    home = stack.box_dir("box-0") / "data" / "sweep"
    found = [path for folder in ("code", "runner-*") for path in home.glob(f"{folder}/**/*.py")]
    return {path: path.read_bytes() for path in found}


def test_c01_not_verified_and_not_approved(verified: Stack, finished_once: Stack) -> None:
    """Pulled and not verified: refused with whatever approval. Verified and not approved: refused for that."""
    result = refused(verified)
    assert "not approved" in result.text, str(result)
    verified.restore("finished")
    ok(verified.sweepctl("pull"))
    approve = verified.sweepctl("approve", "--receipt", "sha256:" + "1" * 64)
    assert approve.rc != 0, str(approve)
    refused(verified, *verified.cells)


def test_c06_replacement_is_also_a_delete(verified: Stack) -> None:
    """A change that makes a new box of a live one is refused before any delete, and says which input forces it."""
    text = verified.config_file.read_text()
    before = verified.snapshot()
    verified.edit_config(lambda sweep: sweep["job"]["resources"].update({"cpu": 2}))
    for result in (verified.pulumi("preview"), verified.up(), verified.up("--target", verified.urn("Box", "box-0"))):
        assert result.rc != 0, str(result)
        assert "resources" in result.text, str(result)
        verified.assert_unchanged(before, result, state=False)
    verified.config_file.write_text(text)
