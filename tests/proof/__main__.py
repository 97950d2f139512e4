"""`python -m tests.proof`: plays what is exhaustive, and goes on where the last run on the same tree stopped.

Each result is kept in .cache/proof/TREE, so that what passed is not played again while no file changes. Ends with 0
when all is proved, with 1 when something failed, with 2 when the time was over first: the same command goes on. The
summary goes into tests/proof.json, which is tracked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.proof import record
from tests.proof.plugin import VARIABLE

MOST_MINUTES = 120.0
SHARING = ("--dist", "loadfile", "--no-loadscope-reorder")
PROVED, FAILED, NOT_REACHED = 0, 1, 2


def shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    found = int(number), int(count)
    if not 1 <= found[0] <= found[1]:
        raise ValueError(text)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=MOST_MINUTES, help="no test begins after that (default 120); 0: none"
    )
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--workers", default=str((os.cpu_count() or 1) + 1), help="processes that play it")
    parser.add_argument("--again", action="store_true", help="what passed on this tree, too")
    parser.add_argument("files", nargs="*", default=["tests"], help="only what is in these files")
    asked = parser.parse_args(argv)
    tree, begun = record.tree_digest(), datetime.now(UTC)
    facts = {"commit": record.commit(), "tree": tree, "date": f"{begun:%Y-%m-%dT%H:%MZ}"}
    facts |= {"uncommitted": True} if record.is_changed() else {}
    if asked.minutes <= 0:
        record.write(record.unplayed(record.read(), **facts, minutes_of_last_run=0))
        print(f"proof of {facts['commit']} (tree {tree}): nothing was played, and tests/proof.json says so")
        return NOT_REACHED
    folder = record.KEPT / tree
    folder.mkdir(parents=True, exist_ok=True)
    known = {} if asked.again else record.outcomes(tree)
    with tempfile.TemporaryDirectory() as scratch:
        tests = Path(scratch) / "tests"
        plan = {
            "until": time.time() + 60 * min(asked.minutes, MOST_MINUTES),
            "results": str(folder / f"{begun:%Y%m%dT%H%M%S}-{os.uname().nodename}-{os.getpid()}.jsonl"),
            "tests": str(tests),
            "proved": [test for test, one in known.items() if one.outcome != "failed"],
            "shard": asked.shard,
        }
        path = Path(scratch) / "plan.json"
        path.write_text(json.dumps(plan))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            asked.workers,
            *SHARING,
            "--proof",
            "-m",
            "proof",
            *asked.files,
        ]
        ended = subprocess.run(command, cwd=record.ROOT, env={**os.environ, VARIABLE: str(path)}).returncode
        there = tests.read_text().splitlines() if tests.exists() else []
    if ended not in (0, 1, 5) or not there:  # 5: nothing was left to play
        print(f"proof: pytest ended with {ended}; nothing is said of this tree", file=sys.stderr)
        return FAILED
    minutes = round((datetime.now(UTC) - begun).total_seconds() / 60)
    costs = record.costs(record.read())
    document = record.summary(there, record.outcomes(tree), costs, **facts, minutes_of_last_run=minutes)
    if asked.files == ["tests"]:
        record.write(document)
    print(f"proof of {facts['commit']} (tree {tree}): {document['passed']} of {document['tests']} passed,", end=" ")
    print(f"{document['failed']} failed, {document['skipped']} skipped, {document['not_reached']} not reached")
    for test in document["failures"]:
        print(f"  failed       {test}")
    for file in document["not_reached_in"]:
        print(f"  not reached  some of {file}")
    return FAILED if document["failed"] else NOT_REACHED if document["not_reached"] else PROVED


if __name__ == "__main__":
    sys.exit(main())
