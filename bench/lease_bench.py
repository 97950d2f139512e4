"""What a box bills after its last need, with and without a lease: `python -m bench.lease_bench [months [first]]`.

1,000 random months with fixed seeds, in simulated time: the product's own code against the simulated platforms
(`lease_world`), and what goes wrong meanwhile (`lease_plan`). Each month is played with a lease, and without one, where
the box bills until the month ends. Prints the tables of docs/performance.md.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.lease_plan import STORIES, month
from bench.lease_platforms import NAMES, UNABLE
from bench.lease_world import Verdict, World

MONTHS = 1000
REASONS = (
    ("there is no key in the box", "so there is no key"),
    ("a stop wipes the journal: it must not", "a stop wipes"),
    ("no command on the host ends its bill", "no command on it"),
    ("cells of a killed runner still ran, or were ended late", "without a runner|left behind"),
    ("no file could be opened, or the journal not written", "could not look after its lease|could not be started"),
    ("it was refused", r"answered 40[13]|not permitted|refused it"),
    (
        "no answer, or none that says yes",
        r"answered \d|can't be read|timed out|closed|try again|URLError|ConnectionReset",
    ),
    ("it was accepted, and the box ran on", "still runs|did not end"),
    ("`status`: it can't be reached", "can't be reached"),
)
"""What a month that did not end in time is told as: in words, and how it is found."""


def measure(months: int = MONTHS, first: int = 0) -> dict[str, Any]:
    """By platform, and by what went wrong where a box can stop itself: see `summary`; and how often each reason was
    told. Raises RuntimeError when a promise did not hold."""
    verdicts, without, broken = [], [], []
    for seed in range(first, first + months):
        verdict, bare = played(seed)
        verdicts.append(verdict)
        without.append(bare)
        broken += [f"month {seed}: {what}" for what in verdict.broken]
    if broken:
        raise RuntimeError("; ".join(broken))
    both = list(zip(verdicts, without, strict=True))
    able = [one for one in both if one[0].month.platform not in UNABLE]
    return {
        "months": months,
        "all": summary(both),
        "platforms": {
            name: summary([one for one in both if one[0].month.platform == name])
            for name in NAMES
            if any(one.month.platform == name for one in verdicts)
        },
        "stories": {
            name: summary([one for one in able if one[0].month.story == name])
            for name in STORIES
            if any(one.month.story == name for one, _ in able)
        },
        "told": dict(Counter(reason(one.why) for one in verdicts if one.late).most_common()),
        "silent": [f"{one.month.seed}" for one in verdicts if one.late and not one.why],
    }


def played(seed: int) -> tuple[Verdict, float]:
    """One month with its lease; and what it bills without one, in hours after the same last need."""
    with tempfile.TemporaryDirectory(prefix="lease-") as folder:
        verdict = World(month(seed), Path(folder)).play()
    with tempfile.TemporaryDirectory(prefix="lease-") as folder:
        bare = World(month(seed), Path(folder), leased=False)
        bare.play()
        return verdict, bare.hours_after(verdict.need)


def summary(both: Sequence[tuple[Verdict, float]]) -> dict[str, Any]:
    """Hours with and without the lease; how many ended in time, how many told why not, and how many said nothing."""
    late = [one for one, _ in both if one.late]
    return {
        "months": len(both),
        "without": spread(bare for _, bare in both),
        "with": spread(one.hours for one, _ in both),
        "in_time": len(both) - len(late),
        "told": sum(bool(one.why) for one in late),
        "silent": sum(not one.why for one in late),
    }


def spread(hours: Iterable[float]) -> dict[str, float]:
    found = sorted(hours)
    high = found[min(len(found) - 1, round(0.95 * (len(found) - 1)))]
    return {"median": statistics.median(found), "95": high, "worst": found[-1]}


def reason(why: str) -> str:
    """A telling, in the words of `REASONS`."""
    return next((words for words, pattern in REASONS if re.search(pattern, why)), why or "nothing is said")


def tables(found: dict[str, Any]) -> Iterator[str]:
    """Lines of Markdown."""
    hours = "median | 95 % | worst"
    yield f"| | months | without a lease: {hours} | with: {hours} | in time | told why not | silent |"
    yield "|---|" + "---:|" * 10
    lines = [("**all**", found["all"]), *found["platforms"].items(), *found["stories"].items()]
    for name, one in lines:
        figures = [f"{one[which][key]:.1f} h" for which in ("without", "with") for key in ("median", "95", "worst")]
        counts = [f"{one[key]}" for key in ("in_time", "told", "silent")]
        yield f"| {name} | {one['months']} | {' | '.join([*figures, *counts])} |"
    yield ""
    yield "| told, of a month that did not end in time | months |"
    yield "|---|---:|"
    for words, count in found["told"].items():
        yield f"| {words} | {count} |"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MONTHS
    made = measure(count, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print("\n".join(tables(made)))
    print("silent:", ", ".join(made["silent"]) or "none", file=sys.stderr)
