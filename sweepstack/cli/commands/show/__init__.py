"""`sweepctl show`: what produced a cell's copy, or what a receipt says; exports a receipt."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from sweepstack.cli import completion
from sweepstack.cli.commands.approve.sign import default_key
from sweepstack.cli.commands.show.cell import show_cell
from sweepstack.cli.commands.show.manifests import show_manifests
from sweepstack.cli.options import AsJson, Evidence, Stack
from sweepstack.cli.output import YES, Out, aside, size
from sweepstack.core.printable import visible
from sweepstack.core.records import Receipt
from sweepstack.evidence.statement import NeedsPassphrase, NotAKey, envelope, fingerprint, load_key, statement
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import DIGEST, DIGEST_PREFIX, canonical_json, write_atomically
from sweepstack.onbox.common.errors import EvidenceError, No, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import open_sources, usable
from sweepstack.operations.sweep.target import Target


def command(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL|sha256:…|BOX",
            help="A cell's name, a receipt's whole digest, or a box; by default the latest receipt.",
            autocompletion=completion.cells,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Export the receipt there, as an in-toto Statement for other tools; `-`: stdout.",
        ),
    ] = None,
    sign: Annotated[
        bool,
        typer.Option(
            "--sign",
            help="Export a DSSE envelope, signed with the key's file that SWEEPSTACK_SIGNING_KEY names, or git.",
        ),
    ] = False,
    manifests: Annotated[
        bool,
        typer.Option(
            "--manifests", help="Of a box that is made of a cluster's objects: these, as they are applied, as YAML."
        ),
    ] = False,
    stack: Stack = None,
    evidence: Evidence = None,
    json: AsJson = False,
) -> int:
    """Show what produced a cell's copy, or what a receipt says. Or export a receipt for other tools. Exit 1: none."""
    if sign and output is None:
        raise Unsure("what is signed is an export: say where it goes, -o FILE")
    if json and output == "-":
        raise Unsure("the export is JSON and goes to stdout: with --json, say where it is to go, -o FILE")
    if manifests and (what is None or output is not None):
        raise Unsure("--manifests is of a box, and goes to stdout: sweepctl show BOX --manifests")
    target, out = Target.find_to_read(stack, evidence), Out(as_json=json)
    if manifests and what is not None:
        return show_manifests(target, what, out)
    if what is not None and not what.startswith(DIGEST_PREFIX):
        if output is not None:
            raise Unsure("a receipt is exported, and no cell: leave the cell out, or name a receipt by its digest")
        return show_cell(target, what, out)
    store = usable(open_sources(target), "show")
    found = _receipt(target, store, what)
    key = default_key(target.root) if sign else None
    return _show(target, found, out) if output is None else _export(target, found, output, key, out)


def _receipt(target: Target, store: EvidenceStore, digest: str | None) -> Receipt:
    """The receipt of this digest, or the latest. Raises No if there is none, or if it is damaged."""
    following = [] if target.evidence else [f"sweepctl verify --stack {target.stack}"]
    if digest is not None and not DIGEST.fullmatch(digest):
        raise No(f"{digest} is not a whole digest (sha256: and 64 hex digits)", following)
    try:
        digest = digest or store.latest_receipt()
        if digest is None:
            raise No("there is no receipt: nothing was verified yet", following)
        return store.receipt(digest)
    except EvidenceError as error:
        raise No(str(error), following) from error


def _show(target: Target, receipt: Receipt, out: Out) -> int:
    following = [f"sweepctl show {target.named()} -o receipt.json    (for other tools)"]
    out.document({"receipt": receipt.digest, **receipt.model_dump(mode="json", by_alias=True), "next": following})
    rows = [
        (
            cell.name,
            cell.state,
            cell.box or "-",
            count(len(cell.files), "file"),
            size(sum(file.size for file in cell.files)),
            visible("; ".join(cell.reasons)),
        )
        for cell in receipt.cells
    ]
    out.table(("CELL", "STATE", "BOX", "FILES", "SIZE", "NOTE"), rows)
    out.line(f"{receipt.verified} of {receipt.total} verified   receipt {receipt.digest}", style="bold")
    out.next(following)
    return YES


def _export(target: Target, receipt: Receipt, output: str, sign: str | None, out: Out) -> int:
    """Writes the Statement, in an envelope if it is signed. Nothing is written where it can't be signed."""
    found = statement(receipt)
    subjects = len(found["subject"])
    if not subjects:
        raise No(
            f"no cell of {receipt.digest} is verified: a statement about no file says nothing",
            [] if target.evidence else [f"sweepctl pull --stack {target.stack} --verify"],
        )
    signed_by = None
    written: dict[str, Any] = found
    if sign is not None:
        key = _key(sign)
        written, signed_by = envelope(found, key), fingerprint(key)
    text = canonical_json(written) + b"\n"
    what = f"{receipt.digest}: {count(subjects, 'file')} of {count(receipt.verified, 'cell')}"
    by = f"signed by {signed_by}" if signed_by else "not signed (--sign)"
    if output == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        aside(f"{what}, {by}")
        return YES
    try:
        write_atomically(Path(output), text)
    except OSError as error:
        raise Unsure(f"{output} can't be written: {error.strerror}. Nothing was exported") from error
    out.document({"receipt": receipt.digest, "file": output, "subjects": subjects, "signed_by": signed_by, "next": []})
    out.line(f"written to {output}: {what}, {by}")
    return YES


def _key(path: str) -> Any:
    """The private key; asks for its passphrase at a terminal. Raises No."""
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise No(f"the key {path} can't be read: {error.strerror}. It is to be the file of a private key") from error
    try:
        try:
            return load_key(data, path)
        except NeedsPassphrase as locked:
            if not sys.stdin.isatty():
                raise No(f"{locked}, and there is no terminal to ask at: use a key without one") from locked
            return load_key(data, path, getpass(f"passphrase of {path}: ").encode())
    except NotAKey as error:
        raise No(str(error)) from error
