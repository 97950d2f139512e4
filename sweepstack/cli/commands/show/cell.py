"""`sweepctl show CELL`: shows how the copy of a cell was produced, by its sealed manifest."""

from __future__ import annotations

from typing import Any

from sweepstack.cli.output import NO, YES, Out, size, span
from sweepstack.core.printable import visible
from sweepstack.core.records import Manifest
from sweepstack.evidence.cell_store import find_seal
from sweepstack.evidence.manifest import ManifestRefused, manifest_digest, parse_manifest
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.errors import EvidenceError, No
from sweepstack.operations.sweep.roster_diff import rosters
from sweepstack.operations.sweep.sources import Sources, open_sources, usable
from sweepstack.operations.sweep.target import Target


def show_cell(target: Target, cell: str, out: Out) -> int:
    """Exit 0: the copy is verified; else 1. Raises No where there is none, or no such cell."""
    sources = open_sources(target)
    store = usable(sources, f"show {cell}")
    manifest, digest = _sealed(sources, store, cell)
    verified = _result(store, cell) == digest
    following = [f"sweepctl results {target.named()}"]
    if not verified and target.evidence is None:
        following = [f"sweepctl pull --stack {target.stack} --verify"]
    out.document({**manifest_document(manifest, digest), "verified": verified, "next": following})
    out.table(("WHAT", "OF " + cell), rows(manifest, digest, verified))
    out.table(
        ("FILE", "SIZE", "SHA256", "ROLE"),
        ((visible(file.path), size(file.size), file.sha256[:16], file.role) for file in manifest.files),
    )
    out.next(following)
    return YES if verified else NO


def manifest_document(manifest: Manifest, digest: str) -> dict[str, Any]:
    """The whole manifest as JSON."""
    return {"manifest": digest, **manifest.model_dump(mode="json", by_alias=True)}


def rows(manifest: Manifest, digest: str, verified: bool) -> list[tuple[str, str]]:
    """The manifest as (name, text) for people, the longest last."""
    environment = {key: value for key, value in manifest.environment.items() if key not in ("gpus", "cpu", "cores")}
    git = manifest.provenance.get("git") if isinstance(manifest.provenance, dict) else None
    begun = manifest.begun_from
    earlier = [short(code) for code in manifest.checkpoints_of]
    took = (manifest.sealed_at - manifest.started_at).total_seconds()
    found = [
        ("copy", f"{'verified' if verified else 'not verified'}, manifest {digest}"),
        ("config", f"{manifest.config_digest}  {_pairs(manifest.params)}"),
        ("command", " ".join(manifest.argv[-1:])),
        ("code", manifest.code + _changed(manifest.provenance.get("code_changed"))),
        *([("goes on from", f"checkpoints of code {', '.join(earlier)}")] if earlier else []),
        *([("began from", f"{begun.cell}, manifest {begun.manifest}")] if begun else []),
        ("git", _git(git)),
        *((f"in {name}", str(text)) for name, text in (manifest.provenance.get("trackers") or {}).items()),
        ("setup", manifest.setup or "none"),
        ("box", f"{manifest.box} ({manifest.native_id}), generation {manifest.generation}, attempt {manifest.attempt}"),
        ("ran", f"{manifest.started_at:%Y-%m-%d %H:%M:%S} UTC, sealed {span(took)} later"),
        ("environment", _pairs(environment)),
        ("cpu", f"{manifest.environment.get('cpu', 'not known')}, {manifest.environment.get('cores', '?')} cores"),
        ("gpus", "; ".join(str(gpu) for gpu in manifest.environment.get("gpus") or ()) or "none"),
    ]
    return [(what, visible(text[:400]) + ("…" if len(text) > 400 else "")) for what, text in found]


def _sealed(sources: Sources, store: EvidenceStore, cell: str) -> tuple[Manifest, str]:
    """The manifest of the copy that is the cell's result, else of the one in its place, and its digest. Raises No if
    there is none that can be read."""
    stack = sources.target.stack
    roster = rosters(sources.target, sources.state)
    known = [entry.name for entry in roster.cells]
    data = store.copies.manifest(cell) if cell in known or cell in store.copies.cells() else None
    if data is not None and (seal := _result(store, cell)) and (found := find_seal(store.copies, cell, seal)):
        data = found[2]  # it may be one that was put aside for one that is not verified
    if data is None:
        if cell in roster.dropped:
            raise No(f"{cell} has no sealed copy: {roster.dropped[cell]}", [f"sweepctl logs --stack {stack} {cell}"])
        if cell not in known:
            raise sources.target.no_cell(cell, known)
        raise No(f"there is no copy of {cell} here", [f"sweepctl pull --stack {stack}"])
    try:
        return parse_manifest(data, store.marker.identity, cell), manifest_digest(data)
    except ManifestRefused as error:
        raise No(f"{cell}: {error}", [f"sweepctl pull --stack {stack} --verify"]) from error


def _result(store: EvidenceStore, cell: str) -> str | None:
    """The manifest of the copy that the latest receipt calls its result."""
    try:
        latest = store.latest_receipt()
        cells = store.receipt(latest).cells if latest else ()
    except EvidenceError:
        return None
    return next((found.result for found in cells if found.name == cell), None)


def _git(git: Any) -> str:
    if not isinstance(git, dict) or not git.get("commit"):
        return "none: the work dir was in no checkout, or the box was not told"
    branch = f" on {git['branch']}" if git.get("branch") else ""
    dirty = ", with changes that were not committed" if git.get("dirty") else ""
    return f"{git['commit']}{branch}{dirty}"


def _changed(how: Any) -> str:
    """A remark if the code was edited on the box while the cell ran."""
    return f", changed on the box while the cell ran: {how}" if how else ""


def _pairs(values: dict[str, Any]) -> str:
    return "  ".join(f"{key}={value}" for key, value in values.items())
