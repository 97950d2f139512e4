"""The process that reads files one after the other; `loaders.pool` drives it.

One JSON document per line. In: `{"files": [[path, number of its spec or null, sha256, size], …], "specs": [{…}, …],
"reader", "seconds", "check"}`; of a folder the names of its files stand behind its size. Out: of one file alone any
number of `{"progress": bytes}`; then `{"results": [[…], …], "seconds": {…}, "network"}`, each as `base.ROW` has it.
Ends when its input does. It leaves the network where it can, and limits itself before each request: address space by
the file's size, processor time, no core dumps, no large writes.
Whatever a file provokes is an answer; an exit is a worker that can't work at all.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sweepstack.core.extensions import part_of
from sweepstack.core.loader_names import CORE
from sweepstack.loaders import confine
from sweepstack.loaders.base import ROW, LoadResult, PlainSpec, Progress, Reader
from sweepstack.loaders.load import load

if TYPE_CHECKING:
    from sweepstack.loaders.command import Check

SPARE = {"restricted": 1 << 30, "torch": 4 << 30}
"""Address space beyond what the process has, apart from what the file's own size calls for. Bytes."""
LARGEST_WRITE = 1 << 20
"""Readers write nothing; importing torch probes for a temporary folder."""
TIMES = {"restricted": 2, "torch": 4}
"""How often the file's size may be mapped or copied."""
NUMBERS = frozenset({"torch", "safetensors", "npz", "npy", "parquet"})
"""Loaders that need numpy. It takes longer to import than a thousand small files to read."""
_ROW = attrgetter(*ROW)


def main() -> None:
    """Serves until the input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    # Whatever a library prints must not be taken for an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    confine.first_to_go()
    confine.limit(resource.RLIMIT_CORE, 0, 0)
    confine.limit(resource.RLIMIT_FSIZE, LARGEST_WRITE, confine.LARGEST_WRITE)
    network = not confine.leave_network()

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for line in sys.stdin:
        say({**_read(json.loads(line), lambda count: say({"progress": count})), "network": network})


def _read(asked: dict[str, Any], progress: Progress) -> dict[str, Any]:
    files, reader, seconds = asked["files"], asked["reader"], asked["seconds"]
    specs = [_spec(given) for given in asked["specs"]]
    for name in {name for spec in specs for name in _libraries(spec, reader)}:
        with contextlib.suppress(ImportError):  # which its reader then says
            importlib.import_module(name)  # before the limits: torch maps gigabytes of libraries
    room: Reader = reader if all(spec.load in CORE for spec in specs) else "torch"
    _limit(room, max(size or 0 for _, _, _, size, *_ in files), seconds)
    check = _check(asked["check"], seconds)
    alone = progress if len(files) == 1 else None
    results: list[Any] = []
    stages: dict[str, float] = {}
    for path, number, sha256, size, *more in files:
        spec = None if number is None else specs[number]
        result = _answer(path, spec, sha256, size, reader, check, alone, *more)
        results.append(_ROW(result))
        for stage, took in result.stages.items():
            stages[stage] = stages.get(stage, 0.0) + took
    return {"results": results, "seconds": stages}


def _spec(given: dict[str, Any]) -> PlainSpec:
    fields: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in given.items()}
    return PlainSpec(**fields)


def _check(root: str | None, seconds: float) -> Check | None:
    if root is None:
        return None
    from sweepstack.loaders.command import Check  # it brings subprocess and tempfile: a quarter of a worker's start

    return Check(root, seconds)


def _libraries(spec: PlainSpec, reader: Reader) -> Iterator[str]:
    """What reading such a file imports that takes much room."""
    if spec.load in NUMBERS:
        yield "numpy"
    if spec.load == "torch" and reader == "torch":
        yield "torch"
    if spec.load not in CORE and (formats := part_of("formats", "table")):
        yield from formats.libraries(spec.load)


def _answer(
    path: str,
    spec: PlainSpec | None,
    sha256: str | None,
    size: int | None,
    reader: Reader,
    check: Check | None,
    progress: Progress | None,
    members: Sequence[str] = (),
) -> LoadResult:
    try:
        return load(
            path, spec, sha256, expected_size=size, reader=reader, check=check, progress=progress, members=members
        )
    except Exception as error:  # one file that no check foresaw must not end the reading of all others
        return LoadResult(False, (f"could not be read ({type(error).__name__})",))


def _limit(reader: Reader, size: int | None, seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    confine.limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + seconds) + 2)
    mapped = confine.mapped_bytes()
    if mapped:
        confine.limit(resource.RLIMIT_AS, mapped + SPARE[reader] + TIMES[reader] * (size or 0))


if __name__ == "__main__":
    main()
