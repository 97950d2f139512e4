"""What `make proof` keeps of its runs, and which of its tests a slice plays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from tests.proof import record
from tests.proof.plugin import NOT_REACHED, VARIABLE, Plan, Proof, slice_of
from tests.proof.record import Cost, Outcome

TESTS = [f"tests/{file}.py::test_{number}" for file in ("a", "b", "long") for number in range(20)]
COSTS = {"tests/a.py": Cost(3.0, 1.0), "tests/b.py": Cost(8.0, 2.0), "tests/long.py": Cost(90.0, 1.0)}


class MainProcess:
    """The configuration of a run that plays no slice, and is no worker."""

    hook = SimpleNamespace(pytest_deselected=lambda items: None)

    def getoption(self, name: str) -> None:
        return None


def report(
    test: str, when: Literal["setup", "teardown"], outcome: Literal["passed", "skipped"], why: str = ""
) -> pytest.TestReport:
    return pytest.TestReport(test, ("", 0, ""), {}, outcome, why or None, when)


def test_a_slice_is_the_same_for_a_seed_and_takes_no_longer_than_asked() -> None:
    slices = [slice_of(TESTS, seed, COSTS) for seed in map(str, range(50))]
    assert slices == [slice_of(TESTS, seed, COSTS) for seed in map(str, range(50))]
    assert len({tuple(one) for one in slices}) > 10
    for chosen in slices:
        assert chosen
        assert not [test for test in chosen if "long" in test], "its first test alone takes longer than a slice"
        files = {test.partition("::")[0] for test in chosen}
        count = {name: sum(test.startswith(name) for test in chosen) for name in files}
        assert sum(COSTS[name].first + COSTS[name].each * (count[name] - 1) for name in files) <= 30.0


def test_a_slice_is_chosen_where_all_that_is_left_took_no_time() -> None:
    """Seconds are kept with one decimal: `make test` ended before its first test, where only such a file was left."""
    none = dict.fromkeys(COSTS, Cost(0.0, 0.0))
    assert slice_of(TESTS, "0", none) == sorted(TESTS)


def test_each_test_is_of_one_shard() -> None:
    plans = [Plan(0.0, "", "", (), (number, 3)) for number in (1, 2, 3)]
    assert all(sum(plan.is_mine(test) for plan in plans) == 1 for test in TESTS)


def test_a_later_run_counts_and_what_was_not_played_is_named(tmp_path: Path) -> None:
    for folder in ("tree", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tests" / "a.py").write_text("# as it was played")
    file = record.file_digest("tests/a.py::test_0", tmp_path)
    for number, ended in enumerate(["failed", "passed"]):
        record.add(tmp_path / "tree" / f"{number}.jsonl", Outcome("tests/a.py::test_0", ended, 2.0, file))
    found = record.outcomes("tree", tmp_path, tmp_path)
    document = record.summary(TESTS[:2], found, commit="c0ffee")
    assert (document["passed"], document["failed"], document["not_reached"]) == (1, 0, 1)
    assert document["not_reached_in"] == ["tests/a.py"]
    assert record.costs(document) == {"tests/a.py": Cost(2.0, 2.0)}
    assert record.outcomes("another tree", tmp_path, tmp_path) == {}
    (tmp_path / "tests" / "a.py").write_text("# with another test")
    assert record.outcomes("tree", tmp_path, tmp_path) == {}, "nothing was played of the file as it is"


def test_a_test_file_that_no_other_names_makes_no_other_tree(tmp_path: Path) -> None:
    texts = {
        "tests/test_a.py": "def test_one(): ...\n# test_b",
        "tests/test_b.py": "from tests.test_c import world\n",
        "tests/test_c.py": "world = 1",
        "tests/mutants/killers.py": 'KILLERS = ["tests/test_d.py::test_four"]  # test_a',
        "tests/test_d.py": "",
        "tests/test_e.py": "",
        "tests/more/test_e.py": "",
        "README.md": "tests/test_a.py",
    }
    assert record.unnamed_tests(texts) == {"tests/test_a.py", "tests/test_b.py"}
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    digests = []
    for changed in ("", *texts):
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text + "\n# changed" * (name == changed))
        digests.append(record.tree_digest(tmp_path))
    assert [one == digests[0] for one in digests[1:]] == [
        name in ("tests/test_a.py", "tests/test_b.py") for name in texts
    ]


def test_what_the_time_did_not_reach_is_not_recorded(tmp_path: Path) -> None:
    """pytest reports the end of such a test, too, and that end passes."""
    results = tmp_path / "tree" / "run.jsonl"
    results.parent.mkdir()
    proof = Proof(MainProcess(), Plan(0.0, str(results), ""))  # type: ignore[arg-type]
    proof.pytest_runtest_logreport(report("late", "setup", "skipped", f"Skipped: {NOT_REACHED}: the time is over"))
    proof.pytest_runtest_logreport(report("late", "teardown", "passed"))
    assert not results.exists()
    proof.pytest_runtest_logreport(report("played", "setup", "passed"))
    proof.pytest_runtest_logreport(report("played", "teardown", "passed"))
    assert list(record.outcomes("tree", tmp_path)) == ["played"]


def test_a_run_that_a_test_begins_does_not_see_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with each extension taken out wrote its own list of tests over ours."""
    monkeypatch.setenv(VARIABLE, "plan.json")
    Proof(MainProcess(), Plan(0.0, "", str(tmp_path / "tests"))).pytest_collection_modifyitems([])  # type: ignore[arg-type]
    assert VARIABLE not in os.environ


def test_what_rents_on_runpod_is_played_without_its_older_interface_too() -> None:
    """`from … import *` takes what `__all__` names, so a module that has one would be played without its tests."""
    rented = Path(__file__).parents[1] / "rented"
    texts = {path.name: path.read_text() for path in rented.glob("test_*.py")}
    del texts["test_several_platforms.py"]  # it rents on the last of `whole_rentals`, which is another
    there = {name for name, text in texts.items() if "whole_rentals" in text or '"runpod"' in text}
    assert there == {path.name for path in (rented / "retired").glob("test_*.py")}
    for name in there:
        assert f"from tests.rented.{name.removesuffix('.py')} import *" in (rented / "retired" / name).read_text()
        assert "__all__" not in texts[name].replace("no `__all__`", "")


def test_a_file_that_was_not_reached_keeps_what_it_cost(tmp_path: Path) -> None:
    document = record.summary(["tests/a.py::test_0"], {}, COSTS, commit="c0ffee")
    assert (document["passed"], document["not_reached"]) == (0, 1)
    assert record.costs(document) == {"tests/a.py": COSTS["tests/a.py"]}, "and no file that is gone"
    none = record.unplayed(document | {"passed": 1, "not_reached": 0}, commit="beef")
    assert (none["commit"], none["passed"], none["not_reached"]) == ("beef", 0, 1)
    assert record.costs(none) == record.costs(document)


def test_the_tracked_file_names_a_commit_of_this_history() -> None:
    """`make proof` alone writes it. Where this is red, history was written anew since: `make proof`, or `python -m
    tests.proof --minutes 0`, which plays nothing and says so."""
    document = record.read()
    assert record.is_of_this_history(document["commit"]) is not False, document["commit"]
    counted = [document[name] for name in ("passed", "failed", "skipped", "not_reached")]
    assert sum(counted) == document["tests"]
    assert len(document["failures"]) == document["failed"]


def test_a_commit_is_known_where_git_can_tell(tmp_path: Path) -> None:
    """A clone without the commits of before, and a folder without git, say that they can't."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert record.is_of_this_history("c0ffee", tmp_path) is None
    git("init", "-q", "one")
    for number in range(2):
        git("-C", "one", "commit", "-q", "--allow-empty", "-m", str(number))
    first = git("-C", "one", "rev-parse", "--short=12", "HEAD~1").strip()
    assert record.is_of_this_history(first, tmp_path / "one") is True
    assert record.is_of_this_history("c96f28646780", tmp_path / "one") is False
    git("clone", "-q", "--depth=1", (tmp_path / "one").as_uri(), "two")
    assert record.is_of_this_history(first, tmp_path / "two") is None
