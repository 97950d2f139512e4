"""How several processes share the tests: which go together, and which begin.

A file's tests go to one process where they share what was prepared once; so do all that begin with a prepared moment of
a sweep on the engine, which each process would make for itself. Where tests wait more than they compute, each goes
alone, between the others: a process that waits leaves its core to them, and no long file is last.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
LONGEST = ("engine", "rented", "extensions", "week", "states", "s3", "acceptance", "mutants", "onbox", "fuzz")
"""Folders whose files take half a minute and more: they begin. What is not named here takes seconds."""
WAITING = (
    "conformance",
    "chaos",
    "unit/platforms",
    "unit/live",
    "drill",
    "unit/provider",
    "unit/channel",
    "unit/launch",
    "extensions/by_hand",
    "extensions/lambda_api",
    "extensions/paperspace_api",
)
"""Folders whose tests wait for long, and share nothing."""
PARTS = {"tests/states/test_engine.py": 4, "tests/states/test_handlers.py": 4, "tests/onbox/test_claims_nfs.py": 6}
"""Files that take half an hour and more in `make proof`, and into how many parts each is split. Of the states each part
prepares the starting points for itself, which takes minutes. As one part each, they were played alone at the end."""
MOMENTS = {
    "prepared": re.compile(r"^def (\w+)\([^()]*\b(?:small_finished|finished|verified|cleared): Stack\b", re.MULTILINE),
    "locked": re.compile(r"^def (\w+)\((?:locked: Attack|edited: Edited)\b", re.MULTILINE),
}
"""Tests that begin with a sweep of tests/engine/conftest.py, which a process prepares once: all of one name go to the
same process."""


CLUSTER = re.compile(r"\bshared_cluster\(|\(kubernetes_cluster: KubernetesCluster\b")
"""In a file whose tests are on the one Kubernetes cluster of a process: all of them go to the same process, and those
of the conformance suite, too. In `make proof`, which takes hours there, each file goes for itself."""


def begins(nodeid: str, folders: Sequence[str]) -> int:
    """The number of the first of these folders that a test lies in; how many there are, where it lies in none."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    return next((number for number, folder in enumerate(folders) if file.startswith(f"{folder}/")), len(folders))


def goes_alone(nodeid: str) -> bool:
    return begins(nodeid, WAITING) < len(WAITING)


@functools.cache
def prepared(file: Path) -> dict[str, str]:
    """The tests in a file that begin with a prepared sweep, and the name in `MOMENTS` of that."""
    if file.parent.name != "engine" or not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    return {test: name for name, pattern in MOMENTS.items() for test in pattern.findall(text)}


@functools.cache
def is_on_cluster(file: Path) -> bool:
    return file.is_file() and CLUSTER.search(file.read_text(encoding="utf-8")) is not None


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The items as they are to begin: those that go alone are spread evenly among the files of the others."""
    count = Counter(item.path for item in items)

    def rank(item: pytest.Item) -> tuple[int, int, str]:
        return begins(item.nodeid, LONGEST), -count[item.path], str(item.path)

    together = sorted((item for item in items if not goes_alone(item.nodeid)), key=rank)
    alone = sorted((item for item in items if goes_alone(item.nodeid)), key=lambda item: begins(item.nodeid, WAITING))
    return list(_spread(together, alone))


def _spread(together: list[pytest.Item], alone: list[pytest.Item]) -> Iterator[pytest.Item]:
    files = len({item.path for item in together}) or 1
    begun, given = 0, 0
    for number, item in enumerate(together):
        if number and item.path != together[number - 1].path:
            begun += 1
            yield from alone[given : (given := len(alone) * begun // files)]
        yield item
    yield from alone[given:]


def import_share(tests: Path, number: int, count: int) -> None:
    """Imports every `count`-th test module below `tests`, before this process collects all of them.

    pytest rewrites the asserts of a module that is imported for the first time and keeps what it made, which is most of
    the time of a first collection. The processes begin at once: without this each of them would rewrite all modules, in
    the same order at the same time. A module that does not import is left to the collection, which says why.
    """
    if not (tests / "__init__.py").is_file():
        return
    # Before sweepstack.provider.grpc_stubs, which else leaves an empty shell of it for the tests of this process.
    importlib.import_module("pulumi")
    files = (file for file in tests.rglob("test_*.py") if file.relative_to(tests).parts[0] != "live")
    for file in sorted(files, key=lambda file: (-file.stat().st_size, file))[number::count]:
        name = ".".join(file.relative_to(tests.parent).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


class Sharing(LoadFileScheduling):
    """xdist's `--dist loadfile`, but for what goes alone."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        adapter = name.partition("[")[2] if file.startswith("tests/conformance/") else ""
        on_cluster = adapter.startswith("kubernetes") or is_on_cluster(self.config.rootpath / file)
        if on_cluster and not self.config.getoption("proof", False):
            return "kubernetes"
        if goes_alone(nodeid):
            return nodeid
        if file in PARTS:
            return f"{file} {crc32(nodeid.encode()) % PARTS[file]}"
        return prepared(self.config.rootpath / file).get(name.partition("[")[0], file)
