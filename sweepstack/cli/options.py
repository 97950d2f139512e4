"""Options and arguments that several commands share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.onbox.common.errors import Unsure
from sweepstack.onbox.common.units import parse_duration as seconds_of

Stack = Annotated[
    str | None,
    typer.Option(
        "--stack",
        "-s",
        envvar="PULUMI_STACK",
        help="The stack, as in `pulumi --stack`.",
        autocompletion=completion.stacks,
        is_eager=True,  # read first: the completion of later arguments needs it
    ),
]
Evidence = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        metavar="PATH|s3://…",
        help="Read only this evidence, without the stack or its file; no platform is asked.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for programs.")]
ErrorsAsJson = Annotated[
    bool, typer.Option("--json", help="Errors as one JSON document; other output is the program's.")
]
Box = Annotated[str, typer.Argument(metavar="BOX", help="A box's name.", autocompletion=completion.boxes)]
Receipt = Annotated[
    str | None, typer.Argument(metavar="[sha256:…]", help="The receipt's whole digest: naming it is your approval.")
]
Boxes = Annotated[
    list[str] | None,
    typer.Option("--box", metavar="BOX", help="Only this box. Repeatable.", autocompletion=completion.boxes),
]
Verb = Annotated[str, typer.Option(metavar="destroy|stop", help="What the approval allows.")]
Expires = Annotated[str, typer.Option(metavar="72h", help="How long the approval holds, 30d at most.")]
Sign = Annotated[
    bool,
    typer.Option(
        "--sign",
        help="Sign it: as git's user.email, or SWEEPSTACK_SIGNER; with the SSH key of git's user.signingkey, or "
        "SWEEPSTACK_SIGNING_KEY.",
    ),
]


def one_of(given: str, *known: str, option: str = "") -> Any:
    """The word of these that was given, for `option` or as an argument. Raises Unsure for another one."""
    if given in known:
        return given
    from sweepstack.core.suggest import did_you_mean

    named = f"{option} " if option else ""
    raise Unsure(f'{named}"{given}" is none of {", ".join(known)}{did_you_mean(given, known)}')


LONGEST = timedelta(days=30)
"""The longest that an approval may hold; later, people no longer remember what they approved."""


def parse_expires(text: str) -> timedelta:
    """The duration of an approval. Raises Unsure if it is no duration, or more than `LONGEST`."""
    lasts = parse_duration(text)
    if lasts > LONGEST:
        raise Unsure(
            f'--expires "{text}" is too long: an approval holds for {LONGEST.days}d at most, and is soon given again'
        )
    return lasts


def parse_duration(text: str) -> timedelta:
    """`90s`, `15m`, `12h`, `3d`. Raises Unsure for anything else, and for zero."""
    try:
        return timedelta(seconds=seconds_of(text))
    except ValueError:
        raise Unsure(f'"{text}" is not a duration; write 90s, 15m, 12h or 3d') from None
