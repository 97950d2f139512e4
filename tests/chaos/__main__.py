"""`python -m tests.chaos SEED…` plays plans and prints their stories; `--plans N` plays the first N and prints a table;
`--engine N` plays N through the real engine.

Exit code 0 when every promise held in all of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.stage import Stage
from tests.chaos.story import Verdict


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--plans", type=int, default=0, help="play the seeds 0 to N - 1")
    parser.add_argument("--first", type=int, default=0, help="with --plans: begin at this seed")
    parser.add_argument("--engine", type=int, default=0, metavar="N", help="N plans through the real engine, by pytest")
    parser.add_argument("--workers", type=int, default=4, help="plans at the same time (4)")
    told = parser.parse_args()
    if told.engine:
        command = [sys.executable, "-m", "pytest", "-q", "--proof", str(Path(__file__).with_name("test_engine.py"))]
        return subprocess.run(command, env={**os.environ, "SWEEPSTACK_CHAOS_ENGINE": str(told.engine)}).returncode
    seeds = told.seeds or range(told.first, told.first + told.plans)
    begin, verdicts = time.monotonic(), []
    with Stage() as stage, ThreadPoolExecutor(told.workers) as pool:
        for verdict in pool.map(stage.play, seeds):
            verdicts.append(verdict)
            _show(verdict, whole=bool(told.seeds))
            if not told.seeds and len(verdicts) % 20 == 0:
                print(f"{len(verdicts)} plans after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return _table(verdicts, time.monotonic() - begin)


def _show(verdict: Verdict, *, whole: bool) -> None:
    if whole:
        print(f"seed {verdict.plan.seed} on {verdict.plan.platform}, {verdict.plan.boxes} boxes")
        print("\n".join(["faults", *(f"  {fault}" for fault in verdict.plan.faults)]))
        print("\n".join(["strikes", *(f"  {strike}" for strike in verdict.plan.strikes)]))
        print("\n".join(verdict.story))
    for broken in verdict.broken:
        print(f"seed {verdict.plan.seed} {verdict.plan.platform}: {broken}", flush=True)


def _table(verdicts: list[Verdict], seconds: float) -> int:
    broken = Counter(what.partition(":")[0] for verdict in verdicts for what in verdict.broken)
    ways = Counter(verdict.commands for verdict in verdicts)
    print(
        f"\n{len(verdicts)} plans in {seconds:.0f} s, {sum(v.calls for v in verdicts)} calls, "
        f"{sum(v.fired for v in verdicts)} of them with a fault"
    )
    print(f"commands to 'nothing bills': {', '.join(f'{n}: {ways[n]}' for n in sorted(ways))}")
    for word in ("leaked", "doubled", "ended", "stuck", "said", "violation", "crashed"):
        print(f"  {word:<10} {broken.get(word, 0)}")
    bad = [verdict.plan.seed for verdict in verdicts if verdict.broken]
    if bad:
        print(f"broken: {' '.join(map(str, bad))}\nreplay: python -m tests.chaos {bad[0]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
