"""`import sweepstack`: a sweep to read from Python, and the notebook of the docs, executed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sweepstack
from tests.unit.cli.conftest import world
from tests.unit.cli.support import STACK, World

__all__ = ["world"]
NOTEBOOK = Path(__file__).resolve().parents[3] / "docs" / "notebook.ipynb"


def opened(world: World) -> sweepstack.Sweep:
    world.save()
    return sweepstack.open(STACK)


def verified(world: World) -> None:
    box = world.add()
    for name, losses in (("lr0.1", [0.9, 0.5]), ("lr0.3", [0.2, 0.3])):
        rows = "".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in enumerate(losses))
        files = {"metrics.json": json.dumps({"loss": losses[-1], "text": "x"}).encode()}
        box.seal(name, files=files | {"metrics.jsonl": rows.encode()})
    assert world.run("pull").code == 0
    world.run("verify")


def test_it_says_what_the_command_says_and_writes_nothing(world: World) -> None:
    verified(world)
    document = world.run("results", "--json", "--metric", "loss", "--metric", "min:loss").json
    before = {path: path.stat().st_mtime_ns for path in world.evidence.rglob("*")}
    sweep = opened(world)
    rows = sweep.results(["loss", "min:loss"])
    assert [(row["cell"], {name: row[name] for name in ("loss", "min:loss")}) for row in rows] == [
        (cell["name"], cell["values"]) for cell in document["cells"]
    ]
    assert rows[0].items() >= {"lr": 0.1, "state": "verified", "code": document["cells"][0]["code"]}.items()
    assert [(cell.name, cell.verified) for cell in sweep.cells] == [("lr0.1", True), ("lr0.3", True), ("lr0.9", False)]
    assert sweep.axes == ["lr"]
    assert sweep.receipt is not None
    assert sweep.receipt.verified == 2
    assert [(one.cell, one.points) for one in sweep.curves()] == [
        ("lr0.1", ((0.0, 0.9), (1.0, 0.5))),
        ("lr0.3", ((0.0, 0.2), (1.0, 0.3))),
    ]
    mean = sweep.means(["loss"], over=["lr"])[0]
    assert (mean["n"], mean["of"], mean["loss_mean"], mean["loss_n"]) == (2, 3, 0.4, 2)
    assert not [name for name in sweep.means(over=["lr"])[0] if name.startswith("text")], "a text has no mean"
    assert sweep.artifacts("lr0.1")["metrics.json"].read_text() == '{"loss": 0.5, "text": "x"}'
    assert sweep.manifest("lr0.1").attempt == 1
    assert {path: path.stat().st_mtime_ns for path in world.evidence.rglob("*")} == before
    assert repr(sweep) == "<sweep sweep-t: 2 of 3 cells verified>"


def test_a_text_alone_is_one_name_and_not_its_letters(world: World) -> None:
    verified(world)
    sweep = opened(world)
    assert sweep.results("loss") == sweep.results(["loss"])
    assert "loss" in sweep.results("loss")[0]
    assert sweep.means(over="lr") == sweep.means(over=["lr"])
    assert len(sweep.means()) == 3, "no seed to average over"
    assert [one.cell for one in sweep.curves("loss", "lr0.1")] == ["lr0.1"]


def test_artifacts_in_a_bucket_are_refused_with_the_way_to_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    verified(world)
    sweep = opened(world)
    monkeypatch.setattr("sweepstack.extensions.library.sweep.FolderCopies", type("Bucket", (), {}))
    with pytest.raises(sweepstack.Unsure, match=r"no folder of this computer: .*copy cells/lr0.1/ here first"):
        sweep.artifacts("lr0.1")


def test_it_is_refused_in_words(world: World) -> None:
    verified(world)
    sweep = opened(world)
    with pytest.raises(sweepstack.No, match=r"there is no cell lr0.2 in sweep-t"):
        sweep.cell("lr0.2")
    with pytest.raises(sweepstack.No, match=r"lr0.9 is pending, not verified"):
        sweep.artifacts("lr0.9")
    with pytest.raises(sweepstack.No, match=r"there is no copy of lr0.9 here"):
        sweep.manifest("lr0.9")
    with pytest.raises(sweepstack.No, match=r"over lrr: no axis of sweep-t \(it has lr\)"):
        sweep.means(over=["lrr"])
    with pytest.raises(sweepstack.Unsure, match='it is "pandas" or "polars"'):
        sweep.frame(library="spark")  # type: ignore[call-overload]
    with pytest.raises(sweepstack.SweepstackError, match="/nothing is not there"):
        sweepstack.open(evidence=Path("/nothing"))
    world.engine_says("error: no stack named 'sweep-x' found")
    with pytest.raises(sweepstack.SweepstackError):
        sweepstack.open("sweep-x")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(world: World, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library)
    verified(world)
    sweep = opened(world)
    frame = sweep.frame(library=library)  # type: ignore[call-overload]
    assert list(frame["cell"]) == ["lr0.1", "lr0.3"]
    assert list(frame["loss"]) == [0.5, 0.3]
    assert list(sweep.frame(over=["lr"], library=library)["loss_n"]) == [2]  # type: ignore[call-overload]
    assert list(sweep.curve_frame("loss", ["lr0.1"], library=library)["loss"]) == [0.9, 0.5]  # type: ignore[arg-type]
    monkeypatch.setattr("sweepstack.core.extras.find_spec", lambda _: None)
    with pytest.raises(sweepstack.Unsure, match=f"a frame of {library} can't be made: .* --extra {library}"):
        sweep.frame(library=library)  # type: ignore[call-overload]


def test_the_import_is_light() -> None:
    """It imports nothing of ours, and the library no pandas: a person's own script pays for what it uses."""
    code = (
        "import sys; import sweepstack; mine = [name for name in sys.modules if name.startswith('sweepstack.')]; "
        "import sweepstack.extensions.library.sweep; "
        "print(mine, {'pandas', 'polars', 'typer', 'rich', 'pulumi'} & {*sys.modules})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.strip() == "[] set()"


@pytest.mark.proof
def test_the_notebook_of_the_docs_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real kernel, in the project's folder. Only the engine is the stand-in of these tests."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    verified(world)
    world.save()
    monkeypatch.setenv("PULUMI_STACK", STACK)
    monkeypatch.setenv("PATH", str(world.engine), prepend=":")
    book = nbformat.read(NOTEBOOK, as_version=4)
    begin = f"import sweepstack.status.engine.call as call\ncall.find_engine = lambda: {str(world.engine / 'pulumi')!r}"
    book.cells.insert(0, nbformat.v4.new_code_cell(begin))
    nbclient.NotebookClient(book, timeout=60, resources={"metadata": {"path": str(world.root)}}).execute()
    said = json.dumps(book.cells)
    assert "lr0.3 is best; 2 cells are verified" in said.replace('\\"', "")
    assert "<sweep sweep-t: 2 of 3 cells verified>" in said
