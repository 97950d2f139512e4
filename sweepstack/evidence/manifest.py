"""Reads the manifest of a sealed cell as data from a machine that is not trusted."""

from __future__ import annotations

import re
import unicodedata

from pydantic import ValidationError

from sweepstack.core import schema
from sweepstack.core.records import LATER, SCHEMA, Cell, Manifest
from sweepstack.onbox.common.canonical import digest_of, digest_of_bytes
from sweepstack.onbox.common.errors import SweepstackError

MANIFEST = "manifest.json"
LOG = "log.txt"
MAX_MANIFEST = 64 << 20
"""Bytes."""
MAX_PATH = 1024
MAX_COMPONENT = 255
_PLAIN = re.compile(r"(?:[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,63}/){0,7}[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,63}")
"""Names that are surely taken. Most are such, and are not looked at letter by letter."""


class ManifestRefused(SweepstackError):
    """The manifest is not usable. The message is the reason, in a few words, without a path of this machine."""


class RefusedForNow(ManifestRefused):
    """The next pull may get the cell; what the box has may be right."""


def manifest_digest(data: bytes) -> str:
    """The digest by which the journal, the receipt and the copy are compared: without the final newline."""
    return digest_of_bytes(data.removesuffix(b"\n"))


def parse_manifest(data: bytes, identity: str, cell: str) -> Manifest:
    """The manifest in `data`, proved to be this sweep's, this cell's, and to name only files inside its folder.

    Raises ManifestRefused.
    """
    if len(data) > MAX_MANIFEST:
        raise ManifestRefused(f"its manifest is too large: {len(data):,} bytes")
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise ManifestRefused("its manifest is damaged: not JSON") from None
        where = ".".join(str(part) for part in first["loc"])
        raise ManifestRefused(f"its manifest is damaged: {where + ': ' if where else ''}{first['msg']}") from None
    if why := schema.why_too_new(manifest.schema_, LATER):
        raise ManifestRefused(f"its manifest can't be read here: {why}")
    if manifest.schema_ not in (SCHEMA, LATER):
        raise ManifestRefused(f"its manifest is of schema {manifest.schema_}")
    if manifest.identity != identity:
        raise ManifestRefused("its manifest is of another sweep")
    if manifest.cell != cell:
        raise ManifestRefused(f"its manifest is that of another cell ({manifest.cell[:128]!r})")
    try:
        digest = digest_of({"name": manifest.cell, "params": manifest.params})
    except ValueError:  # NaN, or a number of thousands of digits
        raise ManifestRefused("its manifest is damaged: its parameters hold a number that is none") from None
    if digest != manifest.config_digest:
        raise ManifestRefused("its manifest was edited: its parameters are not those of its config digest")
    _check_paths([file.path for file in manifest.files])
    return manifest


def binding_problem(manifest: Manifest, cell: Cell) -> str:
    """Why the manifest is not for this cell of the roster; empty when it is."""
    if manifest.config_digest != cell.config_digest:
        return f"it ran with another config than the roster's ({manifest.config_digest[:19]}…)"
    if cell.source and (manifest.begun_from is None or manifest.begun_from.cell != cell.source):
        return f"it did not begin from {cell.source}"
    return ""


def path_problem(path: str) -> str:
    """Why a name from a box is not taken; empty when it is a plain relative path inside the cell's folder."""
    if _PLAIN.fullmatch(path):
        return ""
    shown = repr(path[:80])
    if not path or path.startswith("/") or "\\" in path or len(path.encode("utf-8")) > MAX_PATH:
        return f"{shown} is not a relative path"
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in path):
        return f"{shown} holds a control character or a line break"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return f"{shown} leads out of the cell's folder"
    if any(len(part.encode("utf-8")) > MAX_COMPONENT for part in parts):
        return f"{shown} has a name that is too long"
    return ""


def _check_paths(paths: list[str]) -> None:
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        problem = path_problem(path)
        if problem:
            raise ManifestRefused(f"its manifest names a file that is refused: {problem}")
        folded = fold(path)
        if folded == MANIFEST:  # which is its own folded form
            raise ManifestRefused("its manifest names itself")
        if folded in seen:
            raise ManifestRefused(f"its manifest names {path[:80]!r} and {seen[folded][:80]!r}, which may be one file")
        seen[folded] = path
        above = folded.rpartition("/")[0]
        while above:
            folders[above] = path
            above = above.rpartition("/")[0]
    for folded in seen.keys() & folders.keys():
        raise ManifestRefused(f"its manifest names {seen[folded][:80]!r} both as a file and as a folder")


def fold(path: str) -> str:
    """Equal for names that some file system takes for one: case and composition of letters do not count."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
