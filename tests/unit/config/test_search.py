"""`search:` of a stack file: what is wrong with it, and the cells that it makes with and without a log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweepstack.config.search import SearchConfig, search_words
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.budget import Budget
from sweepstack.core.search_log import Step
from sweepstack.evidence.search_log import append, read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError
from tests.unit.config.helpers import GOOD, load, refusal

SEARCH = """    search:
      axes: {lr: {log_uniform: [1e-4, 0.1]}, opt: {choice: [sgd, adam]}}
      at_most: {cells: 9}
      at_once: 3
"""
RUN = re.search(r"^      run: .*$", GOOD, re.MULTILINE)
CELLS = re.search(r"^    cells:\n(      .*\n)+", GOOD, re.MULTILINE)
assert RUN is not None
assert CELLS is not None
WITH = (
    GOOD.replace(RUN[0], "      run: python train.py --lr {lr} --opt {opt} --out {out}")
    .replace(CELLS[0], "    cells: {}\n" + SEARCH)
    .replace("NAME", "x")
)

WRONG = [
    ("at_once: 3", "at_onze: 3", 'search.at_onze unknown key; did you mean "at_once"?'),
    ("log_uniform: [1e-4", "log_unifrom: [1e-4", "search.axes.lr.log_unifrom unknown key; did you mean"),
    ("[1e-4, 0.1]", "[0.1, 1e-4]", "expected two numbers, the least and the most"),
    ("[1e-4, 0.1]", "[0, 0.1]", "expected two numbers above 0"),
    ("{log_uniform: [1e-4, 0.1]}", "{uniform: [0, 1], int: [1, 2]}", "not both uniform and int"),
    ("{log_uniform: [1e-4, 0.1]}", "{}", "expected one of uniform, log_uniform, int, log_int, choice"),
    ("{log_uniform: [1e-4, 0.1]}", "{log_uniform: [0.1, 1], step: 0.1}", "no step beside log_uniform"),
    ("{log_uniform: [1e-4, 0.1]}", "{int: [1, 2.5]}", "two whole numbers"),
    ("{log_uniform: [1e-4, 0.1]}", "{int: [1, 9], step: 0.5}", "a whole step beside int"),
    ("[sgd, adam]", "[sgd, sgd]", "each of them once"),
    ("{choice: [sgd, adam]}", "{choice: [sgd, adam], when: {wd: 1}}", "an axis that stands above opt"),
    ("{choice: [sgd, adam]}", "{choice: [sgd, adam], when: {lr: [0.1]}}", "give it a default in cells.base"),
    ("at_most: {cells: 9}", "at_most: {dollars: 9}", "search.at_most.cells"),
    ("at_most: {cells: 9}", "at_most: {cells: 99999}", "10,000 cells at most"),
    ("at_most: {cells: 9}", "at_most: {cells: 9}\n      sampler: tpe", "tpe learns from it"),
    ("at_most: {cells: 9}", "at_most: {cells: 9}\n      metric: los", 'search.metric: "los"'),
    ("cells: {}", "cells: {list: [{name: s3, lr: 1, opt: a}]}", "is what a cell of the search is called"),
    ("cells: {}", "cells: {grid: {lr: [1]}}", "search.axes.lr is in cells.grid, too"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_what_is_wrong_is_told_with_its_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in WITH
    text = re.sub(r"\s+", " ", refusal(tmp_path, WITH.replace(old, new)))
    assert said in text


@pytest.mark.needs_extension("search")
def test_an_axis_that_the_job_never_gets_is_told_at_the_axis(tmp_path: Path) -> None:
    found = load(tmp_path, WITH.replace("--opt {opt} ", "")).refused_new
    assert found is not None
    assert "search.axes.opt the job never gets opt" in " ".join(str(found).split())


def project(tmp_path: Path) -> tuple[StackConfig, EvidenceStore]:
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nruntime: python\nstackConfigDir: stacks\n")
    config = load(tmp_path, WITH)
    uri = evidence_uri(tmp_path, config.pull_to)
    assert uri is not None
    return config, EvidenceStore.found(uri, "abcdefghij", "sweepstack", "x")


@pytest.mark.needs_extension("search")
def test_the_first_cells_follow_from_the_file_and_the_rest_from_the_log(tmp_path: Path) -> None:
    config, store = project(tmp_path)
    first = config.roster
    assert first.names == ("s0", "s1", "s2")
    steps = [Step(kind="suggested", cell=c.name, number=n, params=c.params) for n, c in enumerate(first.cells)]
    more = {"lr": 0.5, "opt": "adam"}
    log = append(
        store.objects,
        read_search_log(store.objects),
        [*steps, Step(kind="suggested", cell="s3", number=3, params=more)],
    )
    longer = load(tmp_path, WITH).roster
    assert longer.cells[:3] == first.cells
    assert longer.cells[3].params == more
    assert load(tmp_path, WITH.replace("at_once: 3", "at_once: 5")).roster.digest == longer.digest
    stopped = Step(kind="pruned", cell="s1", rule="median", rung=1, x=3, value=2, bound=1, among=4, metric="loss")
    append(store.objects, log, [stopped])
    roster = load(tmp_path, WITH).roster
    assert "s1" not in roster.names
    assert roster.dropped == {"s1": stopped.why}
    assert "median at 1 (reached at 3)" in stopped.why


@pytest.mark.needs_extension("search")
def test_a_log_of_another_sweep_is_none_and_one_that_was_edited_is_refused(tmp_path: Path) -> None:
    config, store = project(tmp_path)
    cells = config.roster.cells
    append(
        store.objects,
        read_search_log(store.objects),
        [Step(kind="suggested", cell=c.name, number=n, params={"lr": 1.0, "opt": "x"}) for n, c in enumerate(cells)],
    )
    assert load(tmp_path, WITH).roster.cells != cells
    path = store.root / "records" / "search.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"x"', b'"y"', 1))
    with pytest.raises(ConfigError, match="nothing is changed"):
        load(tmp_path, WITH)
    path.write_bytes(whole[:-1])
    with pytest.raises(ConfigError, match="cut off"):
        load(tmp_path, WITH)
    path.write_bytes(whole)
    (tmp_path / "Pulumi.yaml").write_text("name: other\nruntime: python\nstackConfigDir: stacks\n")
    assert load(tmp_path, WITH).roster.cells == cells


@pytest.mark.needs_extension("search")
def test_the_review_says_the_most_that_it_can_cost(tmp_path: Path) -> None:
    config = load(tmp_path, WITH.replace("cells: 9", "cells: 9, dollars: 12"))
    assert config.search is not None
    assert SearchConfig.model_validate_json(config.search.text) == config.search
    said = search_words(config.search.text, Budget(usd=30, stop=True))
    assert "9 cells at most" in said
    assert "$12" in said
    assert "stopped at $30" in said
    open_end = load(tmp_path, WITH).search
    assert open_end is not None
    assert "no bound in dollars" in search_words(open_end.text, None)


def test_a_file_without_a_search_reads_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.evidence.search_log.log_at", lambda *_: pytest.fail("the evidence was read"))
    load(tmp_path, GOOD)
