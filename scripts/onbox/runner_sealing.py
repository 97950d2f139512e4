"""Seals what a cell left behind: copied to the durable tier, read back, listed in a manifest, and only then named.

Part of the runner (see runner.py): Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import unicodedata
from pathlib import Path
from typing import Any, Iterable, Iterator, NamedTuple  # noqa: UP035

from runner_records import canonical, now

MANIFEST, LOG = "manifest.json", "log.txt"
TAKEN = {LOG: "log.out.txt", MANIFEST: "manifest.out.json"}
"""Names that are ours in a sealed folder → what a job's own file of that name is called there."""
CHUNK = 1 << 20
MAX_PATH = 1024


class CellFailure(Exception):
    """This attempt did not leave behind what it must. The message is the reason."""


class Source(NamedTuple):
    """A file to seal: where it lies, its path in the sealed folder, its role."""

    file: Path
    path: str
    role: str


def seal(cells: Path, out: Path, log: Path, spec: dict[str, Any], facts: dict[str, Any]) -> tuple[str, int]:
    """Seals one attempt as `cells/<cell>/`. Returns the manifest's digest and the bytes of its files. Blocks.

    `facts`: the manifest but for its files and `sealed_at`. Raises CellFailure, and OSError when the durable tier can't
    be written; under the final name there is then what was there before. Killed at any moment, it leaves no wrong file
    under the final name.
    """
    cell, attempt = facts["cell"], facts["attempt"]
    sources = collect(out, log, spec["artifacts"], spec.get("metrics"))
    partial = cells / f"{cell}.partial-{attempt}"
    set_aside(partial, cell)
    partial.mkdir()
    try:
        files, folders = [], {partial}
        for source in sources:
            target = partial / source.path
            for folder in reversed(target.relative_to(partial).parents[:-1] if "/" in source.path else []):
                (partial / folder).mkdir(exist_ok=True)
                folders.add(partial / folder)
            size, sha256 = copy(source.file, target)
            files.append({"path": source.path, "size": size, "sha256": sha256, "role": source.role})
        manifest = canonical(dict(facts, files=files, sealed_at=now()))
        (partial / MANIFEST).write_bytes(manifest + b"\n")
        for file in files:
            flush_and_drop(partial / file["path"])
        flush_and_drop(partial / MANIFEST)
        for file in files:
            if read_back(partial / file["path"]) != file["sha256"]:
                raise CellFailure(f"{file['path']} reads back differently from the durable tier; not sealed")
        if (partial / MANIFEST).read_bytes() != manifest + b"\n":
            raise CellFailure("the manifest reads back differently from the durable tier; not sealed")
        for folder in folders:
            sync_folder(folder)
        publish(partial, cells / cell)
    except (CellFailure, OSError):
        shutil.rmtree(partial, ignore_errors=True)  # only a copy: what it was made of is still in out/
        raise
    for earlier in range(1, attempt):
        shutil.rmtree(cells / f"{cell}.partial-{earlier}", ignore_errors=True)
    return "sha256:" + hashlib.sha256(manifest).hexdigest(), sum(file["size"] for file in files)
