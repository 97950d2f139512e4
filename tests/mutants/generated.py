"""`python -m tests.mutants.generated ROOM … [-- TESTS …]`: plays generated mutants of rooms, and lists who survives.

A ROOM is a folder or file of the product (`sweepstack/teardown`). The tests, those of tests/unit where none are named,
are collected once; then each mutant is a fork of that process with one function exchanged, and plays the tests that
entered this function, those of its room and the shortest first, until one fails. So a mutant costs a second, not a
start of Python.

Results are kept in .cache/mutants/TREE.jsonl: the same command goes on where it was stopped. Not seen are functions
that only other processes run (a runner on a box, a program of the engine): their mutants are "not reached".
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
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.generate import ROOT, Generated, function_of, of_file
from tests.proof.record import tree_digest

CACHE = ROOT / ".cache" / "mutants"
FILE_SECONDS = 900.0
MUTANT_SECONDS = 180.0
TESTS_EACH = 60
"""At most so many tests are played for a mutant; those that are left out are counted in the result."""


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
    """Which tests entered which function, and how long each test takes."""

    tests: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Play:
    """The plugin: in place of pytest's own loop."""

    def __init__(self, rooms: Sequence[Path], workers: int) -> None:
        self.mutants = [one for path in _files(rooms) for one in of_file(path)]
        self.files = {str(ROOT / one.path) for one in self.mutants}
        self.workers = workers
        self.items: dict[str, pytest.Item] = {}
        CACHE.mkdir(parents=True, exist_ok=True)
        self.results = CACHE / f"{tree_digest()}.jsonl"
        self.reached = CACHE / f"{tree_digest()}.reach"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        known = [json.loads(line) for line in self.results.read_text().splitlines()] if self.results.exists() else []
        played = {one["mutant"] for one in known}
        todo = [one for one in self.mutants if one.name not in played]
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

    def _reach(self) -> Reach:
        """Plays all tests once, those of a file in a fork of their own, and notes the functions that each enters. What
        was noted for this tree, these rooms and these tests is kept."""
        asked = [sorted(self.files), sorted(self.items)]
        if self.reached.exists() and (kept := json.loads(self.reached.read_text()))["asked"] == asked:
            return Reach(kept["tests"], kept["seconds"])
        by_file: dict[str, list[str]] = {}
        for name in self.items:
            by_file.setdefault(name.partition("::")[0], []).append(name)
        reach = Reach()
        for answer in _forks([(self._enter, (names,)) for names in by_file.values()], self.workers, FILE_SECONDS):
            for test, seconds, functions in answer or []:
                reach.seconds[test] = seconds
                for function in functions:
                    reach.tests.setdefault(function, []).append(test)
        print(f"{len(reach.seconds)} tests passed and enter {len(reach.tests)} functions", flush=True)
        self.reached.write_text(json.dumps({"asked": asked, **asdict(reach)}))
        return reach

    def _enter(self, names: Sequence[str]) -> list[tuple[str, float, list[str]]]:
        seen: set[CodeType] = set()

        def look(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                seen.add(frame.f_code)

        found = []
        for name, following in zip(names, [*names[1:], None], strict=True):
            seen.clear()
            begun = time.monotonic()
            threading.setprofile(look)
            sys.setprofile(look)
            passed = self._passes(name, following)
            sys.setprofile(None)
            if passed:
                ours = sorted({_key(code) for code in seen if code.co_filename in self.files})
                found.append((name, time.monotonic() - begun, ours))
        return found

    def _passes(self, name: str, following: str | None) -> bool:
        after = self.items[following] if following else None
        reports = runtestprotocol(self.items[name], log=False, nextitem=after)
        return all(one.passed for one in reports)

    def _at_once(self, todo: Sequence[tuple[Generated, Reach]]) -> Iterator[Verdict]:
        jobs = [(self._judge, one) for one in todo]
        for (mutant, _), answer in zip(todo, _forks(jobs, self.workers, MUTANT_SECONDS), strict=True):
            yield Verdict(**answer) if answer else Verdict(mutant.name, "hung")

    def _judge(self, mutant: Generated, reach: Reach) -> dict[str, Any]:
        module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
        loader: Any = module.__spec__.loader if module.__spec__ else None
        old = function_of(mutant, loader.get_code(module.__name__))
        room = f"tests/unit/{Path(mutant.path).parent.name}/"
        tests = sorted(reach.tests.get(_key(old), ()), key=lambda one: (room not in one, reach.seconds[one]))
        if not tests:
            return asdict(Verdict(mutant.name, "not reached"))
        function = _loaded(module, mutant.function.split("."), old)
        if function is None:
            return asdict(Verdict(mutant.name, "not found"))
        function.__code__ = function_of(mutant)
        chosen = tests[:TESTS_EACH]
        for count, (test, following) in enumerate(zip(chosen, [*chosen[1:], None], strict=True), 1):
            if not self._passes(test, following):
                return asdict(Verdict(mutant.name, "killed", test, count))
        return asdict(Verdict(mutant.name, "survived", "", len(chosen), len(tests) - len(chosen)))


def _key(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"


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
    given = asked.parse_args(words)
    play = Play(given.rooms, given.workers)
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", *given.tests], plugins=[play])
    counts = Counter(json.loads(line)["word"] for line in play.results.read_text().splitlines())
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
