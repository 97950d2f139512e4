"""The process that reads files one after the other; `loaders.pool` drives it.

One JSON document per line. In: `{"path", "spec": {…} | null, "sha256", "size", "reader", "seconds", "check"}`. Out, any
number of `{"progress": bytes}`, then `{"result": {…}}`. For small files, in: a list of them; out: `{"results": […]}`,
in their order; the seconds of all are told with the first. Ends when its input does. It leaves the network where it
can, and limits itself before each file, or list: address space by the file's size, processor time, no core dumps, no
large writes. Whatever a file provokes is an answer; an exit is a worker that can't work at all.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sweepstack.loaders import command, confine
from sweepstack.loaders.base import LoadResult, PlainSpec, Progress, Reader
from sweepstack.loaders.load import load

SPARE = {"restricted": 1 << 30, "torch": 4 << 30}
"""Address space beyond what the process has, apart from what the file's own size calls for. Bytes."""
LARGEST_WRITE = 1 << 20
"""Readers write nothing; importing torch probes for a temporary folder."""
TIMES = {"restricted": 2, "torch": 4}
"""How often the file's size may be mapped or copied."""
NUMBERS = frozenset({"torch", "safetensors", "npz", "npy", "parquet"})
"""Loaders that need numpy. It takes longer to import than a thousand small files to read."""


def main() -> None:
    """Serves until the input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    # Whatever a library prints must not be taken for an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    confine.first_to_go()
    confine.limit(resource.RLIMIT_CORE, 0, 0)
    confine.limit(resource.RLIMIT_FSIZE, LARGEST_WRITE, command.LARGEST_WRITE)
    network = not confine.leave_network()

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    def told(result: LoadResult) -> dict[str, Any]:
        return {**vars(result), "network": network}

    for line in sys.stdin:
        asked = json.loads(line)
        jobs: list[dict[str, Any]] = asked if isinstance(asked, list) else [asked]
        for name in {name for job in jobs for name in _libraries(job)}:
            importlib.import_module(name)  # before the limits: torch maps gigabytes of libraries
        first = jobs[0]
        _limit(first["reader"], max(job["size"] or 0 for job in jobs), first["seconds"])
        if asked is first:
            say({"result": told(_answer(first, first["reader"], lambda count: say({"progress": count})))})
        else:
            found = [_answer(job, job["reader"], None) for job in jobs]
            say({"results": [told(result) for result in _summed(found)]})


def _summed(results: list[LoadResult]) -> list[LoadResult]:
    """The same, the seconds of all with the first: written and read for each, they take as long as a small file."""
    stages: dict[str, float] = {}
    for result in results:
        for stage, seconds in result.stages.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    return [replace(result, stages=stages if number == 0 else {}) for number, result in enumerate(results)]


def _libraries(job: dict[str, Any]) -> Iterator[str]:
    """What reading this file imports that takes much room."""
    load = job["spec"]["load"] if job["spec"] else None
    if load in NUMBERS:
        yield "numpy"
    if load == "torch" and job["reader"] == "torch":
        yield "torch"


def _answer(job: dict[str, Any], reader: Reader, progress: Progress | None) -> LoadResult:
    spec = _spec(job["spec"])
    check = command.Check(job["check"], job["seconds"]) if job["check"] else None
    try:
        return load(
            job["path"],
            spec,
            job["sha256"],
            expected_size=job["size"],
            reader=reader,
            check=check,
            progress=progress,
        )
    except Exception as error:  # one file that no check foresaw must not end the reading of all others
        return LoadResult(False, (f"could not be read ({type(error).__name__})",))


def _spec(given: dict[str, Any] | None) -> PlainSpec | None:
    return PlainSpec(**{**given, "keys": tuple(given["keys"])}) if given else None


def _limit(reader: Reader, size: int | None, seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    confine.limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + seconds) + 2)
    mapped = confine.mapped_bytes()
    if mapped:
        confine.limit(resource.RLIMIT_AS, mapped + SPARE[reader] + TIMES[reader] * (size or 0))


if __name__ == "__main__":
    main()
