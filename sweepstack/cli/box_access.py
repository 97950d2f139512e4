"""Gives a person access to a box (`ssh`, `exec`, `forward`), over the channel that all commands use."""

from __future__ import annotations

from collections.abc import Sequence

from sweepstack.cli.output import No, Unsure, aside, complain
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.platform import Phase
from sweepstack.status.engine.state import BoxEntry

NO_WAY = 255
"""As with `ssh`: the box could not be reached, or nothing may run there. Other exit codes are the command's own."""


def find_box(target: Target, name: str) -> BoxEntry:
    """The box of this name in the state. Raises No, which lists the boxes of the state."""
    sources = open_sources(target)
    box = sources.state.box(name)
    if box is not None:
        return box
    known = sorted({box.name for box in sources.state.boxes})
    raise No(
        f"there is no box {name} in the state (there: {', '.join(known) or 'none'}){did_you_mean(name, known)}",
        [f"sweepctl status --stack {target.stack}"],
    )


def way_to(target: Target, box: BoxEntry) -> Channel:
    """A channel to a box that runs. Raises No or Unsure, with the command that helps."""
    try:
        platform = box.context().platform
        record = platform.get(box.native_id, box.account)
        if record.phase.at_rest:
            raise No(
                f"box {box.name} is {record.phase}: nothing runs on it",
                [f"pulumi up --stack {target.stack}    (after boxes.{box.name}.want is set to running)"],
            )
        if record.phase is not Phase.RUNNING:
            note = f": {record.note}" if record.note else ""
            raise No(f"box {box.name} is {record.phase}{note}", [f"sweepctl status --stack {target.stack}"])
        return platform.channel(box.native_id, box.account)
    except No:
        raise
    except SweepstackError as error:
        raise Unsure(f"box {box.name}: {error}", [f"sweepctl status --stack {target.stack}"]) from error


def visit(target: Target, name: str, command: Sequence[str], *, terminal: bool) -> int:
    """Runs `command` (a shell if it is empty) on the box. Returns its exit code, or 255 if it could not be run."""
    try:
        box = find_box(target, name)
        channel = way_to(target, box)
        if not command:
            aside(
                f"{box.name} ({box.native_id}): your own shell; the queue is in {box_layout.HOME}, and a stop or a "
                "delete of the box does not wait for you"
            )
        return channel.attach(list(command), terminal=terminal)
    except No as error:
        complain(str(error), error.next)
    except SweepstackError as error:
        complain(str(error), [f"sweepctl status --stack {target.stack}"])
    return NO_WAY
