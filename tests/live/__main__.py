"""`python -m tests.live PLATFORM PREFIX`: ends what a live run left behind that could not do it itself."""

from __future__ import annotations

import argparse
import os
import sys

from tests.live.books import all_books
from tests.live.run import LiveRun


def main() -> int:
    """Exit code 1 when something is left, 2 for bad words."""
    parser = argparse.ArgumentParser(prog="python -m tests.live", description=__doc__)
    parser.add_argument("platform", choices=all_books())
    parser.add_argument("prefix", help="as the run's first lines say it: sweepstack-live<six letters>-")
    told = parser.parse_args()
    if not told.prefix.startswith("sweepstack-live") or not told.prefix.endswith("-"):
        parser.error(f"{told.prefix!r} is no prefix of a live run: sweepstack-live<six letters>-")
    books = all_books()[told.platform]
    if not os.environ.get(books.key, "").strip():
        parser.error(f"a key is needed: export {books.key}=…")
    left = LiveRun(told.platform, 0.0, told.prefix).end_all()
    for line in left:
        print(f"STILL THERE, AND BILLING: {line}", file=sys.stderr)
    print(f"look at {books.console}" if left else f"nothing called {told.prefix}… is left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
