"""`python -m tests.drill --kills 100 --seed 1`: exit 0 when all that is left is bit-equal to an undisturbed run."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.drill.play import disturbed, undisturbed


def main() -> int:
    """Plays, compares, and says what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
        found, happened = disturbed(Path(folder) / "disturbed", arguments.kills, arguments.seed, say)
        expected = undisturbed(Path(folder) / "undisturbed", len(found))
    different = sorted(cell for cell in found if found[cell] != expected[cell])
    print(f"{sum(happened.values())} accidents in {time.monotonic() - begun:.0f} s: {dict(happened)}")
    print(f"{len(found) - len(different)} of {len(found)} cells bit-equal to an undisturbed run {different or ''}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
