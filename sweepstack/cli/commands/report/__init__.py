"""`sweepctl report`: writes one HTML page of a sweep that runs or is over."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli.collect import take_snapshot
from sweepstack.cli.options import AsJson, Evidence, Stack
from sweepstack.cli.output import YES, No, Out, Unsure, size
from sweepstack.cli.progress import Progress
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.status.compose import compose

STDOUT = "-"


def command(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to (default: report-STACK.html); `-`: stdout."),
    ] = None,
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> int:
    """Write one HTML page of a sweep: cells over time, cost, machines, results, curves, evidence, decisions."""
    if json and output == STDOUT:
        raise Unsure("--json and the page can't both go to stdout: name a file with -o")
    return report(Target.find_to_read(stack, evidence), output, Out(as_json=json))


def report(target: Target, output: str | None, out: Out) -> int:
    """Writes the page. Reads only, and costs nothing. Raises No where there is nothing to show, or where another file
    is in the way."""
    file = None if output == STDOUT else Path(output or f"report-{target.stack}.html")
    if file is not None:
        _refuse_other(file)
    with Progress("reading"):
        from sweepstack.cli.commands.report.gather import gather
        from sweepstack.report.sweep import sweep_page

        sources = open_sources(target)
        snapshot = take_snapshot(sources, files=False)
        if not snapshot.roster and not snapshot.births:
            raise No(f"{target.stack} has no cells, and nothing was ever rented")
        view = compose(snapshot)
        if target.evidence is not None:  # nothing else was asked, so no command is known to be due
            view = replace(view, next=())
        facts = gather(sources, snapshot, view)
        page = sweep_page(facts)
    data = page.encode()
    if file is None:
        sys.stdout.write(page)
        return YES
    _write(file, data)
    following = [f"xdg-open {file}" if sys.platform != "darwin" else f"open {file}"]
    out.document(
        {
            "stack": target.stack,
            "file": str(file.absolute()),
            "bytes": len(data),
            "cells": len(snapshot.roster),
            "verified": view.verified,
            "bills": view.bills,
            "next": following,
        }
    )
    out.line(f"{file}: {view.verified} of {len(snapshot.roster)} cells verified, {size(len(data))}")
    out.next(following)
    return YES


def _refuse_other(file: Path) -> None:
    """Raises No where a file is there that no `report` wrote, or where none can be written."""
    from sweepstack.report.page import MARK

    try:
        with file.open("rb") as handle:
            begins = handle.read(4096)
    except FileNotFoundError:
        if not file.parent.is_dir():
            raise No(f"{file.parent} is no folder: make it, or name another file with -o") from None
        return
    except OSError as error:
        raise No(f"{file} can't be written: {error.strerror}. Name another file with -o") from error
    if begins and MARK.encode() not in begins:
        raise No(f"{file} is there, and no page of sweepctl: name another file with -o, or move it away")


def _write(file: Path, data: bytes) -> None:
    """Whole or not at all: a browser may have the earlier page open."""
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as handle:
            handle.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(handle.name, 0o666 & ~mask)
        os.replace(handle.name, file)
    except OSError as error:
        raise No(f"{file} can't be written: {error.strerror}. Name another file with -o") from error
