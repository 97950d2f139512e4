"""`python -m tests.mutants.generated ROOM … [-- TESTS …]`: plays generated mutants of rooms, and lists who survives.

A ROOM is a folder or file of the product (`sweepstack/teardown`). The tests, those of tests/unit where none are named,
are collected once; then each mutant is a fork of that process with one function exchanged, and plays the tests that
reach the changed place, those of its room and the shortest first, until one fails. So a mutant costs a second, not a
start of Python.

Results are kept in .cache/mutants/TREE.jsonl: the same command goes on where it was stopped. With a larger `--each`, it
plays again who survived while tests were left out, and who hung. Not seen are functions that only other processes run
(a runner on a box, a program of the engine): their mutants are "not reached".
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.generate import REACHED, ROOT, Generated, function_of, of_file, watched
from tests.proof.record import tree_digest

CACHE = ROOT / ".cache" / "mutants"
FILE_SECONDS = 900.0
TEST_SECONDS = 3.0
TESTS_EACH = 60
"""At most so many tests are played for a mutant, with `TEST_SECONDS` for each; those left out are counted."""


@dataclass(frozen=True)
class Verdict:
    """`word`: killed, survived, hung, not reached or not found; `by` failed, `tests` were played."""

    mutant: str
    word: str
    by: str = ""
    tests: int = 0
    left_out: int = 0


@dataclass
class Reach:
    """Which tests reach the place of which mutant, and how long each test takes."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Play:
    """The plugin: in place of pytest's own loop."""

    def __init__(self, rooms: Sequence[Path], workers: int, each: int) -> None:
        self.mutants = [one for path in _files(rooms) for one in of_file(path)]
        self.workers = workers
        self.each = each
        self.items: dict[str, pytest.Item] = {}
        CACHE.mkdir(parents=True, exist_ok=True)
        self.results = CACHE / f"{tree_digest()}.jsonl"
        self.reached = CACHE / f"{tree_digest()}.reach"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        known = self.verdicts()
        todo = [one for one in self.mutants if one.name not in known or self._again(known[one.name])]
        print(f"\n{len(self.mutants)} mutants, {len(todo)} to play; {len(self.items)} tests")
        reach = self._reach() if todo else Reach()
        begun = time.monotonic()
        for number, verdict in enumerate(self._at_once([(one, reach) for one in todo]), 1):
            with self.results.open("a") as out:
                out.write(json.dumps(asdict(verdict)) + "\n")
            if verdict.word != "killed":
                print(f"{verdict.word:<12} {verdict.mutant}", flush=True)
            if number % 100 == 0:
                print(f"{number} of {len(todo)} in {time.monotonic() - begun:.0f} s", flush=True)
        return True

    def verdicts(self) -> dict[str, Verdict]:
        """The last verdict on each mutant that was played."""
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return {one.mutant: one for one in (Verdict(**json.loads(line)) for line in lines)}

    def _again(self, last: Verdict) -> bool:
        return self.each > max(last.tests, TESTS_EACH) and (last.word == "hung" or last.left_out > 0)

    def _reach(self) -> Reach:
        """Plays all tests once, those of a file in a fork of their own, and notes the places that each reaches. What
        was noted for this tree, these rooms and these tests is kept."""
        asked = [[one.name for one in self.mutants], sorted(self.items)]
        if self.reached.exists() and (kept := json.loads(self.reached.read_text()))["asked"] == asked:
            return Reach(kept["tests"], kept["seconds"])
        by_file: dict[str, list[str]] = {}
        for name in self.items:
            by_file.setdefault(name.partition("::")[0], []).append(name)
        reach = Reach()
        functions = self._watched()
        jobs = [(self._enter, (names, functions)) for names in by_file.values()]
        for answer in _forks(jobs, self.workers, FILE_SECONDS):
            for test, seconds, mutants in answer or []:
                reach.seconds[test] = seconds
                for mutant in mutants:
                    reach.tests.setdefault(mutant, []).append(test)
        print(f"{len(reach.seconds)} tests passed and reach {len(reach.tests)} mutants", flush=True)
        self.reached.write_text(json.dumps({"asked": asked, **asdict(reach)}))
        return reach

    def _watched(self) -> list[tuple[ModuleType, str, FunctionType, CodeType]]:
        """The functions that have mutants, with their module, its file, and code that tells what is reached."""
        found: dict[tuple[str, str], tuple[ModuleType, str, FunctionType, CodeType]] = {}
        codes = {one.path: watched(ROOT / one.path) for one in self.mutants}
        for one in self.mutants:
            module, function = _of(one)
            if function is not None:
                found[one.path, one.function] = (module, one.path, function, function_of(one, codes[one.path]))
        return list(found.values())

    def _enter(
        self, names: Sequence[str], functions: Sequence[tuple[ModuleType, str, FunctionType, CodeType]]
    ) -> list[tuple[str, float, list[str]]]:
        mutants = {(one.path, one.number): one.name for one in self.mutants}
        seen: set[str] = set()
        for module, path, function, code in functions:

            def reached(number: int, value: Any, path: str = path) -> Any:
                seen.add(mutants[path, number])
                return value

            function.__code__ = code
            setattr(module, REACHED, reached)
        found = []
        for name, following in zip(names, [*names[1:], None], strict=True):
            seen.clear()
            begun = time.monotonic()
            if self._passes(name, following):
                found.append((name, time.monotonic() - begun, sorted(seen)))
        return found

    def _passes(self, name: str, following: str | None) -> bool:
        after = self.items[following] if following else None
        reports = runtestprotocol(self.items[name], log=False, nextitem=after)
        return all(one.passed for one in reports)

    def _at_once(self, todo: Sequence[tuple[Generated, Reach]]) -> Iterator[Verdict]:
        jobs = [(self._judge, one) for one in todo]
        for (mutant, _), answer in zip(todo, _forks(jobs, self.workers, self.each * TEST_SECONDS), strict=True):
            yield Verdict(**answer) if answer else Verdict(mutant.name, "hung")

    def _judge(self, mutant: Generated, reach: Reach) -> dict[str, Any]:
        _, function = _of(mutant)
        if function is None:
            return asdict(Verdict(mutant.name, "not found"))
        room = f"tests/unit/{Path(mutant.path).parts[1]}/"
        tests = sorted(reach.tests.get(mutant.name, ()), key=lambda one: (room not in one, reach.seconds[one]))
        if not tests:
            return asdict(Verdict(mutant.name, "not reached"))
        function.__code__ = function_of(mutant)
        chosen = tests[: self.each]
        for count, (test, following) in enumerate(zip(chosen, [*chosen[1:], None], strict=True), 1):
            if not self._passes(test, following):
                return asdict(Verdict(mutant.name, "killed", test, count))
        return asdict(Verdict(mutant.name, "survived", "", len(chosen), len(tests) - len(chosen)))


def _of(mutant: Generated) -> tuple[ModuleType, FunctionType | None]:
    module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    loader: Any = module.__spec__.loader if module.__spec__ else None
    old = function_of(mutant, loader.get_code(module.__name__))
    return module, _loaded(module, mutant.function.split("."), old)


def _loaded(module: ModuleType, path: Sequence[str], code: CodeType) -> FunctionType | None:
    """The function of this path in a module, out of what it is wrapped into (a property, a cache, a static method)."""
    held: Any = module
    for part in path:
        held = vars(held).get(part)
    waiting = [held]
    while waiting:
        one = waiting.pop()
        if isinstance(one, FunctionType) and one.__code__ == code:
            return one
        inner = ("__func__", "__wrapped__", "fget", "fset", "func")
        waiting += [getattr(one, name) for name in inner if getattr(one, name, None) is not None]
    return None


def _files(rooms: Sequence[Path]) -> list[Path]:
    return [path for room in rooms for path in ([room] if room.is_file() else sorted(room.rglob("*.py")))]


def _forks(jobs: Sequence[tuple[Any, tuple[Any, ...]]], workers: int, seconds: float) -> Iterator[Any]:
    """What each job returns, in their order; None where it took too long or died. Each runs in a fork of its own, in a
    session of its own that is ended with it, and with folders for tests that go with it."""
    running: dict[int, tuple[int, Path, float]] = {}
    answers: dict[int, Any] = {}
    begun = 0
    for wanted in range(len(jobs)):
        while wanted not in answers:
            while begun < len(jobs) and len(running) < workers:
                pid, folder = _fork(*jobs[begun])
                running[pid] = (begun, folder, time.monotonic() + seconds)
                begun += 1
            _reap(running, answers)
        yield answers.pop(wanted)


def _reap(running: dict[int, tuple[int, Path, float]], answers: dict[int, Any]) -> None:
    for pid, (number, folder, until) in list(running.items()):
        over, _ = os.waitpid(pid, os.WNOHANG)
        if not over and time.monotonic() < until:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # also what its tests left running
        if not over:
            os.waitpid(pid, 0)
        text = (folder / "answer").read_text() if (folder / "answer").exists() else ""
        answers[number] = json.loads(text) if text else None
        shutil.rmtree(folder, ignore_errors=True)
        del running[pid]
    time.sleep(0.01)


def _fork(call: Any, arguments: tuple[Any, ...]) -> tuple[int, Path]:
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    pid = os.fork()
    if pid:
        return pid, folder
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
        answer = call(*arguments)
        (folder / "answer.part").write_text(json.dumps(answer))
        (folder / "answer.part").rename(folder / "answer")
        code = 0
    finally:
        os._exit(code)


def main(words: Sequence[str]) -> int:
    """See the module. Ends with 0: a list is no verdict."""
    asked = ArgumentParser(prog="python -m tests.mutants.generated", description=__doc__)
    asked.add_argument("rooms", nargs="+", type=lambda room: (ROOT / room).resolve())
    asked.add_argument("--tests", nargs="+", default=["tests/unit"])
    asked.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    asked.add_argument("--each", type=int, default=TESTS_EACH, help="play at most so many tests for a mutant")
    given = asked.parse_args(words)
    play = Play(given.rooms, given.workers, given.each)
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", *given.tests], plugins=[play])
    counts = Counter(one.word for one in play.verdicts().values())
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
