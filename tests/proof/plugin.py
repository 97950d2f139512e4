"""For pytest: which proof tests a run plays, when it stops, and what is kept of it.

Without `--proof` and `--slice` none of them is played; `--slice` adds those of one slice; `--proof` plays all that the
run names, but for those that SWEEPSTACK_PROOF (written by `python -m tests.proof`) says are proved or another's.
"""

from __future__ import annotations

import json
import os
import random
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.proof import record
from tests.proof.record import Cost, Outcome

VARIABLE = "SWEEPSTACK_PROOF"
SLICE_SECONDS = 30.0
LEAST_SECONDS = 0.05
"""So much a test counts at least: one that took nothing by the tracked figures is played now and then, too."""
UNKNOWN = Cost(15.0, 15.0)
NOT_REACHED = "not reached"
AGAIN = '.venv/bin/python -m pytest --proof "{test}"'


@dataclass(frozen=True)
class Plan:
    """One run of `make proof`. `until`: no test begins after that (epoch seconds). `shard`: the i-th of n."""

    until: float
    results: str
    tests: str
    proved: Sequence[str] = ()
    shard: tuple[int, int] = (1, 1)

    @classmethod
    def read(cls) -> Plan | None:
        path = os.environ.get(VARIABLE, "")
        return cls(**json.loads(Path(path).read_text())) if path else None

    def is_mine(self, test: str) -> bool:
        """Whether this shard plays it."""
        number, count = self.shard
        return zlib.crc32(test.encode()) % count == number - 1


def slice_of(tests: Sequence[str], seed: str, costs: Mapping[str, Cost], seconds: float = SLICE_SECONDS) -> list[str]:
    """Some of the tests: always the same for one seed, and about so many seconds long. Each file comes in turn as often
    as its share of all seconds; one whose first test alone takes longer is left to `make proof`."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    cost = {name: costs.get(name, UNKNOWN) for name in files}
    short = [name for name in files if cost[name].first <= seconds]
    dice = random.Random(seed)
    chosen: list[str] = []
    while short and seconds > 0:
        (name,) = dice.choices(short, [len(files[name]) * max(cost[name].each, LEAST_SECONDS) for name in short])
        short.remove(name)
        left = seconds - max(cost[name].first - cost[name].each, 0.0)
        count = min(len(files[name]), int(left / max(cost[name].each, LEAST_SECONDS)))
        if count > 0:
            chosen += dice.sample(files[name], count)
            seconds = left - count * cost[name].each
    return sorted(chosen)


@dataclass(eq=False)  # pytest asks for the hash of a plugin
class Proof:
    """The plugin of one process: of the run itself, or of one of its workers."""

    config: pytest.Config
    plan: Plan | None = field(default_factory=Plan.read)
    seed: str = ""
    took: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = self.config.getoption("--slice")
        if asked is not None and not self.config.getoption("--proof"):
            self.seed = asked or record.commit() or "none"

    @property
    def is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    def pytest_report_header(self) -> str | None:
        return f"slice of the proof: --slice={self.seed}" if self.seed else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        os.environ.pop(VARIABLE, None)  # a pytest that a test runs would keep its results, and its list, as ours
        proofs = [item.nodeid for item in items if item.get_closest_marker("proof")]
        if self.plan is not None:
            self._write(proofs)
            proved = set(self.plan.proved)
            wanted = {test for test in proofs if test not in proved and self.plan.is_mine(test)}
        elif self.config.getoption("--proof"):
            wanted = set(proofs)
        else:
            wanted = set(slice_of(proofs, self.seed, record.costs(record.read()))) if self.seed else set()
        unwanted = set(proofs) - wanted
        self.config.hook.pytest_deselected(items=[item for item in items if item.nodeid in unwanted])
        items[:] = [item for item in items if item.nodeid not in unwanted]
        for item in items:
            if item.nodeid in wanted and self.seed:
                item.user_properties.append(("slice", self.seed))

    def _write(self, proofs: list[str]) -> None:
        """All that there are, for the summary. Each worker writes the same."""
        assert self.plan is not None
        path = Path(self.plan.tests)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text("\n".join(proofs))
        beside.replace(path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.plan is not None and time.time() > self.plan.until:
            pytest.skip(f"{NOT_REACHED}: the time of this run is over")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: Any = yield
        if report.failed and item.get_closest_marker("proof"):
            report.sections.append(("to repeat it", AGAIN.format(test=item.nodeid)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.plan is None or self.is_worker:
            return
        test = report.nodeid
        self.took[test] = self.took.get(test, 0.0) + report.duration
        if report.when == "setup" and report.skipped and NOT_REACHED in str(report.longrepr):
            self._ended[test] = NOT_REACHED
        if self._ended.get(test) == NOT_REACHED:  # its end is reported, too, and would count as passed
            return
        if report.when == "teardown" or report.failed:
            worst = "failed" if report.failed or test in self._failed else self._ended.get(test, "passed")
            if report.failed:
                self._failed.add(test)
            outcome = Outcome(test, worst, round(self.took[test], 2), record.file_digest(test))
            record.add(Path(self.plan.results), outcome)
        elif report.skipped:
            self._ended[test] = "passed" if hasattr(report, "wasxfail") else "skipped"

    _failed: set[str] = field(default_factory=set)
    _ended: dict[str, str] = field(default_factory=dict)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.seed:
            return
        played = sorted(
            report.nodeid
            for reports in terminalreporter.stats.values()
            for report in reports
            if getattr(report, "when", "") == "call" and ("slice", self.seed) in getattr(report, "user_properties", ())
        )
        terminalreporter.section("slice of the proof")
        terminalreporter.line(f"{len(played)} tests of `make proof` were played; the same again: --slice={self.seed}")
        for test in played:
            terminalreporter.line(f"  {test}")
