"""Bad results are never verified: the real `pull` and `verify` name them and exit with 1."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.test_approvals import retry

BAD_STATES = {"missing", "damaged", "unexpected", "failed", "pending", "running", "lost"}


def refuses(stack: Stack, *cells: str) -> None:
    """`verify` exits 1 and names each of `cells` and why; the others are verified; no approval is to be had."""
    result = stack.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    document = result.json()
    for item in document["cells"]:
        bad = item["name"] in cells
        assert item["state"] in BAD_STATES if bad else item["state"] == "verified", f"{item}\n{result}"
        assert bool(item["reasons"]) == bad, f"{item}\n{result}"
    assert (document["verified"], document["total"]) == (len(stack.cells) - len(cells), len(stack.cells)), str(result)
    refused = stack.sweepctl("approve", document["receipt"])
    assert refused.rc != 0, f"approved\n{refused}"
    for cell in cells:
        assert cell in refused.text, f"the refusal does not name {cell}\n{refused}"


def copy_of(stack: Stack, name: str = "model.safetensors") -> Path:
    """The pulled copy of the first cell's file, writable."""
    path = stack.evidence / "cells" / stack.cells[0] / name
    path.chmod(0o644)
    return path


# what is on the durable tier before the pull


def test_a01_zero_byte_checkpoint(finished: Stack) -> None:
    """Every log says success, one checkpoint is empty on the durable tier: damaged, named, refused; others are ok."""
    (finished.durable_cell("seed1") / "model.safetensors").write_bytes(b"")
    pull = finished.sweepctl("pull")
    assert pull.rc == 1, str(pull)
    assert "seed1" in pull.text, str(pull)
    assert "model.safetensors" in pull.text, str(pull)
    result = finished.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    found = {cell["name"]: cell["state"] for cell in result.json()["cells"]}
    assert found.pop("seed1") in ("damaged", "missing")
    assert set(found.values()) == {"verified"}
    refused = finished.destroy()
    assert_refused(refused, ["seed1"])
    assert len(finished.native_ids()) == 2, str(refused)


# what happens to the copy after the pull


def zero(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x10
    path.write_bytes(bytes(data))


def remove(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    elsewhere = path.with_name(path.name + ".real")
    shutil.move(path, elsewhere)
    target = path.parent.parent.parent / f"elsewhere-{path.name}"
    shutil.move(elsewhere, target)
    path.symlink_to(target)


def another_cells(path: Path) -> None:
    shutil.copy(max(path.parent.parent.iterdir()) / path.name, path)


def extra(path: Path) -> None:
    path.with_name("extra.bin").write_bytes(b"nobody asked for this")


ATTACKS = (zero, truncate, flip, remove, link, another_cells, extra)


@pytest.fixture(scope="module")
def many(make_stack: Callable[..., Stack]) -> Stack:
    """A cell for each attack and one more, all pulled; saved as `pulled`."""
    stack = make_stack(cells=tuple(f"seed{number}" for number in range(len(ATTACKS) + 1)))
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    stack.save("pulled")
    return stack


@pytest.mark.proof  # judged by one function: tests/unit/evidence/test_verify.py
@pytest.mark.parametrize("name", ["model.safetensors", "metrics.json"])
def test_copy_changed_after_the_pull(many: Stack, name: str) -> None:
    """Zero bytes, truncated, a bit flipped, removed, a link, another cell's file, one file more: none is verified."""
    many.restore("pulled")
    for cell, attack in zip(many.cells, ATTACKS, strict=False):
        path = many.evidence / "cells" / cell / name
        path.chmod(0o644)
        attack(path)
    refuses(many, *many.cells[:-1])
    table = many.sweepctl("verify")
    assert table.rc == 1, str(table)
    for cell in many.cells:
        assert cell in table.text, str(table)


@pytest.mark.proof
def test_cell_folder_missing(verified: Stack) -> None:
    """A cell of the roster without a copy is missing, not forgotten."""
    shutil.rmtree(verified.evidence / "cells" / verified.cells[0])
    refuses(verified, verified.cells[0])


@pytest.mark.proof  # a row of tests/unit/evidence/test_verify.py
def test_another_cells_whole_folder(verified: Stack) -> None:
    """A whole good cell under another cell's name does not verify as that one."""
    cells = verified.evidence / "cells"
    shutil.rmtree(cells / verified.cells[0])
    shutil.copytree(cells / verified.cells[1], cells / verified.cells[0])
    refuses(verified, verified.cells[0])


@pytest.mark.proof  # tests/unit/evidence/test_verify.py; the command: tests/unit/cli/test_pull_verify.py
def test_cell_that_nobody_asked_for(verified: Stack) -> None:
    """A folder in the evidence that is on no roster is named, and the answer is not yes."""
    cells = verified.evidence / "cells"
    shutil.copytree(cells / verified.cells[0], cells / "seed99")
    result = verified.sweepctl("verify")
    assert result.rc == 1, str(result)
    assert "seed99" in result.text, str(result)


@pytest.mark.proof  # what no journal records: tests/unit/evidence/test_verify.py, test_pull.py
def test_manifest_rewritten_to_fit_the_bad_file(verified: Stack) -> None:
    """A manifest that was edited together with the file is not the one that the box's journal sealed."""
    path = copy_of(verified)
    flip(path)
    manifest = copy_of(verified, "manifest.json")
    document = json.loads(manifest.read_text())
    for entry in document["files"]:
        if entry["path"] == path.name:
            entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")
    refuses(verified, verified.cells[0])


@pytest.mark.proof  # judged by one function: tests/unit/evidence/test_verify.py
def test_stale_copy(verified: Stack) -> None:
    """The copy of an earlier attempt, when the box has sealed a later one, is not a copy of the result."""
    cell = verified.cells[0]
    retry(verified, cell)
    refuses(verified, cell)
    ok(verified.sweepctl("pull"))
    assert verified.verify()["verified"] == len(verified.cells)


@pytest.mark.proof  # tests/unit/evidence/test_verify.py, tests/unit/config/test_mistakes.py
def test_a06_empty_roster(verified: Stack) -> None:
    """Nothing to verify is not everything verified."""
    verified.edit_config(lambda sweep: sweep["cells"].update({"grid": {"seed": []}}))
    for result in (verified.sweepctl("verify"), verified.pulumi("preview")):
        assert result.rc != 0, str(result)
        assert "cells.grid.seed" in result.text, str(result)
        assert "expected at least one value" in result.text, str(result)


@pytest.mark.proof  # the command: tests/golden/outputs/edited.txt
def test_cell_that_was_never_brought_up(verified: Stack) -> None:
    """The roster is what the stack config says, never what was produced: a cell that nobody has started is missing."""
    verified.edit_config(lambda sweep: sweep["cells"].update({"add": [{"seed": 9}]}))
    result = verified.sweepctl("verify", "--json")
    assert result.rc != 0, str(result)
    assert "seed9" in result.text, str(result)


@pytest.mark.proof  # the command: tests/golden/outputs/running.txt
def test_a06_nothing_pulled(finished: Stack) -> None:
    """Sealed on the box is not verified: without a pull every cell is missing, and no zero of zero passes."""
    told = finished.sweepctl("verify")
    assert told.rc == 1, str(told)
    assert "0 of 4 verified" in told.text, str(told)
    result = finished.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    document = result.json()
    assert (document["verified"], document["total"]) == (0, 4)
    assert {item["state"] for item in document["cells"]} <= BAD_STATES | {"sealed"}


# what the job itself leaves behind


@pytest.fixture
def bad_job(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """A sweep that is not up yet, to be told what to do wrong."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    yield stack
    stack.close()


@pytest.mark.proof
def test_a02_job_left_something_else_behind(make_stack: Callable[..., Stack]) -> None:
    """NaN, infinity, a missing key, no file, half a file, and exit code 0: most of it is sealed, none of it verified.
    The hash of half a file is right: the box took it from that."""
    said = {"seed0": "finite", "seed1": "finite", "seed2": "w1", "seed3": "artifact missing", "seed5": "model.safetens"}
    stack = make_stack(cells=(*said, "seed4"))
    for cell, word in zip(said, ("nan", "inf", "wrongkey", "nothing"), strict=False):
        stack.tell(word, cell)
    train = stack.job / "train.py"
    cut = '\nif arguments.seed == 5:\n    os.truncate(arguments.out / "model.safetensors", 700)\n'
    train.write_text(train.read_text() + cut)
    stack.hold(*stack.cells)
    ok(stack.up())
    stack.release()
    stack.wait_done(but=["seed3"])
    stack.wait_idle()
    assert "seed3" not in stack.sealed()
    stack.sweepctl("pull")
    refuses(stack, *said)
    reasons = {item["name"]: " ".join(item["reasons"]) for item in stack.verify()["cells"]}
    for cell, words in said.items():
        assert words in reasons[cell], f"{words!r} is not said of {cell}: {reasons[cell]}"


LEFTOVER = """
import os, subprocess, sys
subprocess.Popen(
    [sys.executable, "-c", "import os, sys, time\\nend = time.time() + 20\\nwith open(sys.argv[1], 'r+b', 0) as f:\\n"
     "    while time.time() < end: f.seek(0); f.write(os.urandom(1 << 20))", str(arguments.out / "noise.bin")],
    start_new_session=True,
)
while not any((arguments.out / "noise.bin").read_bytes()[:64]):
    time.sleep(0.01)
"""


@pytest.mark.proof  # on a box: tests/onbox/test_remains.py, tests/onbox/test_artifacts.py
def test_artifact_that_changes_while_it_is_sealed(bad_job: Stack) -> None:
    """A process that the job left behind writes on: what is sealed is what its manifest says, or nothing is sealed."""
    train = bad_job.job / "train.py"
    train.write_text(train.read_text() + '(arguments.out / "noise.bin").write_bytes(bytes(8 << 20))\n' + LEFTOVER)
    bad_job.up()
    bad_job.wait_for(
        lambda: any(e["event"] in ("cell-sealed", "cell-failed") for e in bad_job.journal("box-0")), "a first end"
    )
    bad_job.close()
    for cell in bad_job.sealed():
        folder = bad_job.durable_cell(cell)
        for entry in json.loads((folder / "manifest.json").read_text())["files"]:
            assert hashlib.sha256((folder / entry["path"]).read_bytes()).hexdigest() == entry["sha256"], entry["path"]
