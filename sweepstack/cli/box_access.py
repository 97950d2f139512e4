"""Gives a person access to a box, over the channel that all commands use."""

from __future__ import annotations

from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import No, SweepstackError, Unsure
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.state import BoxEntry


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
