"""What `make proof` keeps of its runs, and which of its tests a slice plays."""

from __future__ import annotations

from pathlib import Path

from tests.proof import record
from tests.proof.plugin import Plan, slice_of
from tests.proof.record import Cost, Outcome

TESTS = [f"tests/{file}.py::test_{number}" for file in ("a", "b", "long") for number in range(20)]
COSTS = {"tests/a.py": Cost(3.0, 1.0), "tests/b.py": Cost(8.0, 2.0), "tests/long.py": Cost(90.0, 1.0)}


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


def test_each_test_is_of_one_shard() -> None:
    plans = [Plan(0.0, "", "", (), (number, 3)) for number in (1, 2, 3)]
    assert all(sum(plan.is_mine(test) for plan in plans) == 1 for test in TESTS)


def test_a_later_run_counts_and_what_was_not_played_is_named(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number, ended in enumerate(["failed", "passed"]):
        record.add(tmp_path / "tree" / f"{number}.jsonl", Outcome("tests/a.py::test_0", ended, 2.0))
    found = record.outcomes("tree", tmp_path)
    document = record.summary(TESTS[:2], found, commit="c0ffee")
    assert (document["passed"], document["failed"], document["not_reached"]) == (1, 0, 1)
    assert document["not_reached_in"] == ["tests/a.py"]
    assert record.costs(document) == {"tests/a.py": Cost(2.0, 2.0)}
    assert record.outcomes("another tree", tmp_path) == {}
