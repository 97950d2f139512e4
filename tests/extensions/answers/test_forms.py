"""The table of `sweepctl results` as LaTeX and Parquet."""

from __future__ import annotations

import json

import pytest

from sweepstack.core import extensions
from tests.unit.cli.support import World


def test_latex_escapes_what_comes_from_a_job_and_marks_the_best_value(world: World) -> None:
    box = world.add()
    for name, loss in (("lr0.1", 0.5), ("lr0.3", 0.25)):
        box.seal(name, files={"metrics.json": json.dumps({"loss": loss, "a_b%": r"\input{x}$&#"}).encode()})
    assert world.run("pull").code == 0
    world.run("verify")
    text = world.run("results", "--as", "latex", "--best", "loss").out
    assert text.splitlines() == [
        r"\begin{tabular}{llrr}",
        r"\toprule",
        r"cell & lr & loss & a\_b\% \\",
        r"\midrule",
        r"lr0.3 & 0.3 & \textbf{0.25} & \textbackslash{}input\{x\}\$\&\# \\",
        r"lr0.1 & 0.1 & 0.5 & \textbackslash{}input\{x\}\$\&\# \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_parquet_keeps_kinds_and_writes_over_no_other_file(world: World) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    box = world.add()
    for name, loss in (("lr0.1", 0.5), ("lr0.3", 0.3), ("lr0.9", 7.0)):
        box.seal(name, files={"metrics.json": json.dumps({"loss": loss}).encode()})
    assert world.run("pull", "--verify").code == 0
    assert world.run("results", "--as", "parquet").code == 0
    table = pyarrow.read_table(world.root / "results-sweep-t.parquet").to_pydict()
    assert table["cell"] == ["lr0.1", "lr0.3", "lr0.9"]
    assert table["lr"] == [0.1, 0.3, 0.9]
    assert table["loss"] == [0.5, 0.3, 7.0]
    assert world.run("results", "--as", "parquet", "--over", "lr").code == 0, "its own file is made anew"
    assert pyarrow.read_table(world.root / "results-sweep-t.parquet").to_pydict()["loss_n"] == [3]
    (world.root / "notes").write_text("mine")
    refused = world.run("results", "--as", "parquet", "-o", "notes")
    assert refused.code == 1
    assert (world.root / "notes").read_text() == "mine"


@pytest.mark.parametrize("form", ["latex", "parquet"])
def test_without_the_extension_it_names_it(world: World, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add().seal("lr0.1", files={"metrics.json": b'{"loss": 0.5}'})
    assert world.run("pull", "--verify").code == 1, "two cells are missing"
    monkeypatch.delitem(extensions.ROOTS, "sweepstack.extensions")
    refused = world.run("results", "--as", form)
    assert refused.code == 2
    assert f"`sweepctl results --as {form}` belongs to the extension `answers`, which is not" in refused.err
