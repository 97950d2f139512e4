"""`python -m tests.mutants [WORDS]`: breaks each promise in a copy of the tree and sees which named test notices.

Prints a table; exit code 1 when a mutant survives, 2 when a patch no longer fits or a run says nothing. WORDS pick
mutants by name. Takes a quarter of an hour on two cores; `make proof` plays each as a test (test_mutants.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.model import Mutant

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "results")
RUN_SECONDS = 600
NOT_PASSED_ON = ("PYTEST_", "SWEEPSTACK_PROOF")
"""What a run of tests that plays a mutant has in its environment, and the mutant's own run must not."""
_WORDS = ("", "PASSED", "ERROR", "FAILED")
"""A failure counts more than an error: what a mutant spoiled, the end of its test can't tidy up."""


def grow(mutant: Mutant, target: Path) -> str:
    """Makes the mutant's tree at `target`. Returns why it could not, or nothing."""
    shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (target / ".venv").symlink_to((ROOT / ".venv").resolve())
    if not mutant.patches:
        return "it has no patch"
    try:
        for patch in mutant.patches:
            patch.apply(target)
    except ValueError as error:
        return str(error)
    return ""


def survivors(mutant: Mutant, tree: Path) -> tuple[list[str], str]:
    """The named tests that passed on the mutant, and what was odd about the run."""
    how = ("-q", "-p", "no:cacheprovider", "-rA", "--tb=no", "--proof")
    command = [sys.executable, "-m", "pytest", *how, *mutant.caught_by]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED_ON)}
    env = {**ours, "SWEEPSTACK_TEST_TREE": "1", "PYTHONPATH": str(tree)}
    run = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=RUN_SECONDS)
    outcomes: dict[str, str] = {}
    for word, name in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE):
        for known in (name, name.partition("[")[0]):  # a test with parameters fails where one of them does
            outcomes[known] = max(outcomes.get(known, ""), word, key=_WORDS.index)
    passed = [name for name in mutant.caught_by if outcomes.get(name) == "PASSED"]
    odd = [name for name in mutant.caught_by if outcomes.get(name) not in ("PASSED", "FAILED")]
    return passed, f"no verdict of {', '.join(odd)}:\n{run.stdout[-3000:]}{run.stderr[-1000:]}" if odd else ""


def main(words: Sequence[str]) -> int:
    """See the module."""
    worst = 0
    for mutant in [m for m in MUTANTS if not words or any(word in m.name for word in words)]:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            tree = Path(folder) / "tree"
            passed: list[str] = []
            odd = grow(mutant, tree)
            if not odd:
                passed, odd = survivors(mutant, tree)
        verdict = "ODD" if odd else "SURVIVED" if passed else "caught"
        worst = max(worst, {"ODD": 2, "SURVIVED": 1, "caught": 0}[verdict])
        seconds = time.monotonic() - begin
        print(f"{verdict:<9} {mutant.name:<40} {seconds:5.0f} s  {', '.join(passed or mutant.caught_by)}", flush=True)
        if odd:
            print(odd)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
