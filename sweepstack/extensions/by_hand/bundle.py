"""Packs a box as a bundle: a zip that `python3` runs, on any machine and in any notebook.

Made from the box's own folder: code by its digest, queue, settings, runner. No secret is in it. The same content is the
same bytes, so a folder that is synchronized sends it once.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.channel import agent_source
from sweepstack.extensions.by_hand.onbox.main import BUNDLE, PAYLOAD
from sweepstack.extensions.by_hand.onbox.returned import WHOSE
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import sha256_hex, write_atomically

MAIN = b"""import os
import sys

if sys.version_info < (3, 8):
    sys.exit("sweepstack: this is Python %d.%d, and 3.8 is the oldest that will do" % sys.version_info[:2])

from sweepstack.onbox.by_hand.main import main

sys.exit(main(os.path.dirname(os.path.abspath(__file__))))
"""
HOME = box_layout.HOME
FIXED = (1980, 1, 1, 0, 0, 0)


def write(box: Path, runner: str, facts: Mapping[str, Any], folder: Path) -> tuple[Path, Path | None]:
    """Writes the bundle of the box into `folder`, and beside it a notebook with one cell where `facts` has one. Returns
    both paths. Raises OSError."""
    spec = json.loads((box / box_layout.SPEC).read_bytes())
    payload = _payload(box, runner)
    said = {
        **{key: spec[key] for key in WHOSE},
        "schema": 1,
        "payload": sha256_hex(payload),
        "runner": f"{HOME}/{runner}",
        **{key: facts[key] for key in ("out", "work", "archive", "inputs", "hours", "passes") if facts.get(key)},
    }
    path = folder / f"{spec['box']}.{spec['native_id']}.zip"
    _write_changed(path, _zipped(said, payload))
    if not facts.get("cell"):
        return path, None
    notebook = path.with_suffix(".ipynb")
    cell = str(facts["cell"]).replace("{bundle}", path.name).replace("{id}", str(spec["native_id"]))
    _write_changed(notebook, _notebook(cell))
    return path, notebook


def _payload(box: Path, runner: str) -> bytes:
    """The box's files as a tar, each with a fixed time and owner."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _shipped(box, runner):
            entry = tarfile.TarInfo(path.relative_to(box).as_posix())
            entry.size, entry.mode = path.stat().st_size, path.stat().st_mode & 0o777
            with path.open("rb") as source:
                archive.addfile(entry, source)
    return gzip.compress(raw.getvalue(), mtime=0)


def _shipped(box: Path, runner: str) -> Iterator[Path]:
    """What a session needs: no secret, and nothing that an earlier session made."""
    home = box / HOME
    version = runner.partition("/")[0]
    places = [
        home / name for name in ("spec.json", "queue.jsonl", "code", "shipped", "checkpoint", "provenance", version)
    ]
    for place in places:
        if place.is_file():
            yield place
        elif place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())


def _zipped(said: Mapping[str, Any], payload: bytes) -> bytes:
    files = {
        "__main__.py": MAIN,
        BUNDLE: json.dumps(said, sort_keys=True, indent=1).encode("ascii") + b"\n",
        # Sites that unpack every archive they are given (Kaggle) would take a tar apart, and its modes away.
        PAYLOAD: payload,
        **{name: source.read_bytes() for name, source, _ in agent_source.files("common", "by_hand")},
    }
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, FIXED), data, zipfile.ZIP_DEFLATED)
    return raw.getvalue()


def _notebook(cell: str) -> bytes:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell}
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    document = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(document, indent=1).encode("ascii") + b"\n"


def _write_changed(path: Path, data: bytes) -> None:
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)
