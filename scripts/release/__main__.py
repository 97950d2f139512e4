"""`python -m scripts.release` builds a release and checks it.

It publishes nothing: docs/releasing.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.lib.errors import SetupError
from scripts.release import build, check, facts

ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str]) -> int:
    """Exit 0: done, or good. 1: not, with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, what in (
        ("build", "build the commit that is checked out into this folder, which must be new or empty"),
        ("check", "digests, twine, and what is missing before it can be published"),
        ("same", "build the commit once more, and compare to the byte"),
        ("begin", "install the wheel into an empty environment, and begin a project"),
    ):
        verbs.add_parser(verb, help=what).add_argument("dist", type=Path)
    tag = "the tag that it is published under; without one nothing is published, and what is missing is only said"
    verbs.choices["check"].add_argument("--tag", default="", help=tag)
    asked = parser.parse_args(argv)
    try:
        return _run(asked)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(asked: argparse.Namespace) -> int:
    if asked.verb == "build":
        for path in build.build(ROOT, asked.dist):
            print(f"built {path}")
    elif asked.verb == "same":
        check.same(ROOT, asked.dist)
        print("the same bytes again")
    elif asked.verb == "begin":
        check.begin(asked.dist, facts.version(ROOT))
        print("an empty environment begins a project with it")
    else:
        check.whole(asked.dist)
        lacks = facts.missing(ROOT, asked.tag)
        for line in lacks:
            print(f"{'error' if asked.tag else 'not yet'}: {line}", file=sys.stderr)
        if asked.tag and lacks:
            return 1
        print(f"{facts.version(ROOT)}: digests and packages are good")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
