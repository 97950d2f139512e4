"""`sweepctl gotcha list`: every gotcha that is known, with its id."""

from __future__ import annotations

from typing import Annotated

import typer

from sweepstack.cli.options import AsJson
from sweepstack.cli.output import YES, No, Out
from sweepstack.core.suggest import did_you_mean
from sweepstack.extensions.authoring.gotcha_list import UNIVERSAL, known_gotchas
from sweepstack.profiles.load import platforms


def command(
    platform: Annotated[
        str | None, typer.Option("--platform", metavar="NAME", help="Only this platform's, or the universal ones.")
    ] = None,
    json: AsJson = False,
) -> int:
    """Show the gotchas that are known: symptom, cause and fix, with the id that stays."""
    out, names = Out(as_json=json), [*platforms(), UNIVERSAL]
    if platform is not None and platform not in names:
        raise No(f"there is no platform {platform}{did_you_mean(platform, names)}", ["sweepctl gotcha list"])
    found = [one for one in known_gotchas() if platform in (None, one.platform)]
    out.document({"gotchas": [vars(one) for one in found]})
    for one in found:
        out.line(f"{one.id}  {one.platform}: {one.text}")
    return YES
