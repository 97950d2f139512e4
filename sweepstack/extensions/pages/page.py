"""`sweepctl results --as html`: writes one HTML page of a sweep that runs or is over."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from sweepstack.cli.output import YES, Out, size
from sweepstack.cli.progress import Progress
from sweepstack.extensions.pages.page_facts import sweep_facts
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import compose

STDOUT = "-"


def report(target: Target, output: str | None, out: Out) -> int:
    """Writes the page. Reads only, and costs nothing. Raises No where there is nothing to show, or where another file
    is in the way."""
    if out.as_json and output == STDOUT:
        raise Unsure("--json and the page can't both go to stdout: name a file with -o")
    file = None if output == STDOUT else Path(output or f"report-{target.stack}.html")
    if file is not None:
        _refuse_other(file)
    with Progress("reading"):
        from sweepstack.extensions.pages.sweep_page import sweep_page

        sources = open_sources(target)
        snapshot = take_snapshot(sources, files=False)
        if not snapshot.roster and not snapshot.births:
            raise No(f"{target.stack} has no cells, and nothing was ever rented")
        view = compose(snapshot)
        if target.evidence is not None:  # nothing else was asked, so no command is known to be due
            view = replace(view, next=())
        facts = sweep_facts(sources, snapshot, view)
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
    """Raises No where a file is there that no `--as html` wrote, or where none can be written."""
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
