"""`sweepctl confirm WHAT BOX`: a person says what only a person can see.

Each WHAT is a file of this folder, or of `commands/confirm/` of an extension: its `confirm` judges the statement and
records it, and its `USES` names what of the statement it reads beside the box.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated, Any

import typer

from sweepstack.cli.options import AsJson, Box, Stack, one_of
from sweepstack.cli.output import Out
from sweepstack.cli.prompt import own_words
from sweepstack.core import extensions
from sweepstack.core.paths import PACKAGE
from sweepstack.onbox.common.dataclass import dataclass, fields
from sweepstack.onbox.common.errors import Unsure
from sweepstack.operations.sweep.target import Target
from sweepstack.teardown.ownership import who


@dataclass(frozen=True)
class Statement:
    """What a person says of a box, as typed. `at`: "" for now. `another`: the fingerprint of another machine that has
    the box's address now. `power_off`: turn its host off first, where the platform's API can. `which`: its peer or
    worker, or the address of the user's own host."""

    box: str
    saw: str
    by: str = ""
    at: str = ""
    another: str = ""
    power_off: bool = False
    which: str = ""

    def words(self, such_as: str) -> str:
        """What the person saw. Raises Unsure where that is empty, or only the place for it."""
        if words := own_words("--saw", self.saw):
            return words
        raise Unsure(f"--saw is empty: write {such_as}")

    def named(self, what: str) -> str:
        """The peer or the worker. Raises Unsure where none was named."""
        if self.which:
            return self.which
        raise Unsure(f"which {what} of {self.box}? sweepctl confirm {what} {self.box} NAME")

    @property
    def person(self) -> str:
        """Who saw it."""
        return self.by.strip() or who()


def command(
    what: Annotated[str, typer.Argument(metavar="gone|never-rented|peer|host|worker", help="What you saw.")],
    box: Box,
    which: Annotated[
        str,
        typer.Argument(
            metavar="[NAME|ADDRESS]",
            help="The peer or the worker, as `status` shows it; host: the address of your own, now or from now on.",
        ),
    ] = "",
    saw: Annotated[
        str,
        typer.Option(metavar="TEXT", help="What shows it. Of a host: the key's fingerprint, read on the box itself."),
    ] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="The person who saw it; you, by default.")] = "",
    at: Annotated[str, typer.Option(metavar="TIME", help="When, as 2026-11-21T14:05+08:00; now, by default.")] = "",
    another: Annotated[
        str, typer.Option(metavar="SHA256:…", help="gone: the host key of another machine that has its address now.")
    ] = "",
    power_off: Annotated[
        bool, typer.Option("--power-off", help="gone: first turn its host off, where the platform's API shows it.")
    ] = False,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Confirm what only a person can see, as that a box is gone.

    Or that it was never rented, that a peer is gone, that a worker ended, that a host's key is the right one."""
    subject = _subject(what)
    statement = Statement(box, saw, by, at, another.strip(), power_off, which)
    for one in fields(statement)[1:]:
        if getattr(statement, one.name) and one.name not in subject.USES:
            named = which if one.name == "which" else f"--{one.name.replace('_', '-')}"
            raise Unsure(f"{named} says nothing of `confirm {what}`: leave it out")
    return int(subject.confirm(Target.find_sweep(stack), statement, Out(as_json=json)))


def _subject(what: str) -> Any:
    """The module of what is confirmed. Raises Unsure."""
    found = {}
    for package in ("sweepstack.cli.commands", *extensions.command_packages()):
        place = f"{package}.confirm"
        for one in pkgutil.iter_modules([str(PACKAGE.parent.joinpath(*place.split(".")))], f"{place}."):
            found[one.name.rpartition(".")[2].replace("_", "-")] = one.name
    if what in found:
        return importlib.import_module(found[what])
    if extension := extensions.COMMANDS.get(f"confirm {what}"):
        raise Unsure(f"`sweepctl confirm {what}` belongs to {extensions.not_here(extension)}")
    return one_of(what, *sorted(found))
