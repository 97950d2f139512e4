"""Remembers what the last set-up installed, so that a second run takes no time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.lib import kernel, pod_image
from scripts.lib.apt import OF_OPTION
from scripts.lib.engine import yaml_host
from scripts.lib.go_tool import OF_GROUP, YAML_HOST
from scripts.lib.launchers import launcher_is_current, write_command
from scripts.lib.places import Places
from scripts.lib.python_env import installed_version

SCHEMA = 1
PROOF = {
    "[flax]": "msgpack",
    "[gguf]": "gguf",
    "[hdf5]": "h5py",
    "[image]": "pillow",
    "[kubernetes]": "kubernetes",
    "[onnx]": "onnx",
    "[orbax]": "tensorstore",
    "[pandas]": "pandas",
    "[parquet]": "pyarrow",
    "[polars]": "polars",
    "[report]": "bokeh",
    "[runpod]": "runpod",
    "[s3]": "boto3",
    "[search]": "optuna",
    "[sign]": "cryptography",
    "[skops]": "skops",
    "[tensorboard]": "tensorboard",
    "[vastai]": "vastai_sdk",
    "[zarr]": "zarr",
    "browser": "playwright",
    "dev": "pytest",
    "examples": "scikit_learn",
    "torch": "torch",
    "trainer": "transformers",
}
"""A package that each group must have left."""


@dataclass(frozen=True)
class Stamp:
    """`.venv/sweepstack.json`. The shim takes the file's presence as the mark of a set-up checkout."""

    key: str
    groups: tuple[str, ...]
    engine: str
    engine_version: str
    engine_source: str
    offline: bool
    schema: int = SCHEMA
    root: str = ""
    """Where the checkout lay; "" in a stamp of an older version."""

    def write(self, path: Path) -> None:
        write_command(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Stamp | None:
        """None when there is none, or when it is damaged or of another version: set-up then runs in full."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["schema"] != SCHEMA:
                return None
            return cls(**{**record, "groups": tuple(record["groups"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None


def inputs(root: Path) -> Iterable[Path]:
    """All files whose change makes a set-up stale."""
    scripts = root / "scripts"
    yield from (root / "pyproject.toml", root / "uv.lock", root / ".pulumi-version")
    yield from (scripts / "launcher", scripts / "requirements-uv.txt")
    yield from sorted((scripts / "lib").glob("*.py"))
    yield from sorted((scripts / "engine").glob("*/*"))
    for tool in (*OF_GROUP.values(), YAML_HOST):
        yield from sorted((scripts / tool.pins).glob("*"))


def key_of(root: Path) -> str:
    """One digest over the inputs and over where the checkout lies: a venv that was moved has wrong paths in it."""
    hasher = hashlib.sha256(str(root).encode())
    for path in inputs(root):
        content = path.read_bytes() if path.is_file() else b""
        hasher.update(b"\0" + str(path.relative_to(root)).encode() + b"\0" + hashlib.sha256(content).digest())
    return hasher.hexdigest()


def why_stale(stamp: Stamp | None, places: Places, groups: Iterable[str]) -> str | None:
    """Why set-up has to run, for people; None when all that the stamp promises is really there."""
    if stamp is None:
        return "first run"
    if stamp.root and stamp.root != str(places.root):
        return f"the checkout was moved here from {stamp.root}, and .venv holds paths of it"
    if stamp.key != key_of(places.root):
        return "the lock, the engine's pins or set-up itself changed"
    if missing := sorted(set(groups) - set(stamp.groups)):
        return f"more is wanted: {', '.join(missing)}"
    for group in groups:
        tool = OF_GROUP.get(group)
        if tool is not None and not tool.binary(places).is_file():
            return f"{tool.title} is gone from the cache"
        if group == "s3":
            continue
        if group == "yaml" and yaml_host(Path(stamp.engine), places.bin, os.environ) is None:
            return f"{YAML_HOST.title} is gone"
        if group in OF_OPTION and (gone := OF_OPTION[group].missing()):
            return f"{', '.join(gone)} is gone"
        if group == "nfs" and not kernel.is_there(places):
            return f"the kernel is gone from {kernel.folder(places)}"
        if group == "kubernetes" and not pod_image.is_there(places):
            return f"the image of pods is gone from {pod_image.folder(places)}"
        if group in PROOF and installed_version(places, PROOF[group]) is None:
            return f"{PROOF[group]} is gone from .venv"
    for path in (places.python, places.bin / "sweepctl", Path(stamp.engine)):
        if not os.access(path, os.X_OK):
            return f"{path} is gone"
    if not launcher_is_current(places, stamp.engine, offline=stamp.offline):
        return f"{places.bin / 'pulumi'} is gone or was changed"
    return None
