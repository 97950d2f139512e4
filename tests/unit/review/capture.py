"""Prints what a review of the project here would be made of, as JSON. Run by `tests.unit.review.record`."""

from __future__ import annotations

import json
import sys

from sweepstack.cli.commands.review import preview_and_look
from sweepstack.operations.sweep.target import Target
from tests.unit.review.pictures import as_document


def main(stack: str, destroy: str) -> None:
    """`destroy`: "yes" for the review of a destroy."""
    found = preview_and_look(Target.find(stack), destroy=destroy == "yes", base="")
    print(json.dumps({"document": found.document, "live": as_document(found.live)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
