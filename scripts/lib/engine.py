"""Chooses the Pulumi engine: the user's own, the official download, or a build from Go modules."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.errors import SetupError
from scripts.lib.processes import run
from scripts.lib.versions import parse

CLI = "pulumi"
HOST = "pulumi-language-python"
EXEC = "pulumi-language-python-exec"  # the host looks for it beside itself
DYNAMIC = "pulumi-resource-pulumi-python"
YAML_HOST = "pulumi-language-yaml"
REQUIRED = (CLI, HOST, EXEC)

BUILD_RECIPE = b"1"  # raise it when a change of engine_build.py makes another engine from the same pins
OURS = (b"sweepstack-launcher", b"sweepstack-shim")


@dataclass(frozen=True)
class Engine:
    """A complete engine: `cli` is the absolute path of the real `pulumi`, `host` that of its Python language host."""

    cli: Path
    host: Path
    version: str
    source: str  # "path", "download" or "modules"


@dataclass(frozen=True)
class Recipe:
    """What to fetch or build. `digest` changes with anything that changes the result of a build."""

    version: str
    sources: Path
    digest: str

    @classmethod
    def read(cls, root: Path) -> Recipe:
        """Raises SetupError when the checkout is incomplete."""
        sources = root / "scripts" / "engine"
        try:
            version = (root / ".pulumi-version").read_text(encoding="utf-8").strip()
            digest = pins_digest(sources.glob("*/go.*"), BUILD_RECIPE)
        except OSError as error:
            raise SetupError(f"{error.filename}: {error.strerror}; is this a whole checkout?") from error
        return cls(version, sources, digest)

    def folder(self, engines: Path, source: str) -> Path:
        """Where the finished engine of one source is kept."""
        return engines / self.version / (self.digest if source == "modules" else source)


def pins_digest(pins: Iterable[Path], recipe: bytes = b"") -> str:
    """12 hex digits that change with the files that pin a build, and with `recipe`. Raises OSError."""
    hasher = hashlib.sha256(recipe)
    for path in sorted(pins):
        hasher.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return hasher.hexdigest()[:12]


def is_ours(path: Path) -> bool:
    """Whether an executable is this project's launcher or shim, which must not be taken for an engine."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return any(mark in head for mark in OURS)


def executables(name: str, env: Mapping[str, str]) -> Iterable[Path]:
    """All commands of that name on PATH, in order, but for this project's own."""
    for entry in env.get("PATH", os.defpath).split(os.pathsep):
        path = Path(entry or ".").absolute() / name
        if path.is_file() and os.access(path, os.X_OK) and not is_ours(path):
            yield path


def fits(version: tuple[int, int, int], wanted: tuple[int, int, int]) -> bool:
    """Same major version, and not an older minor one: the provider host is written against that protocol."""
    return version[0] == wanted[0] and version[1] >= wanted[1]


def on_path(recipe: Recipe, env: Mapping[str, str]) -> tuple[Engine | None, list[str]]:
    """The user's own engine when it fits, and why each other `pulumi` on PATH was not taken."""
    refused: list[str] = []
    wanted = parse(recipe.version)
    for cli in executables(CLI, env):
        quiet = {**env, "PULUMI_SKIP_UPDATE_CHECK": "true"}
        try:
            version = parse(run([cli, "version"], what=str(cli), deadline=30, env=quiet))
        except (SetupError, ValueError):
            refused.append(f"{cli} does not answer `pulumi version`")
            continue
        text = ".".join(map(str, version))
        if not fits(version, wanted):
            refused.append(f"{cli} is version {text}; {wanted[0]}.{wanted[1]} or newer is needed")
            continue
        beside = [cli.parent / HOST, cli.resolve().parent / HOST]
        hosts = [path for path in (*beside, *executables(HOST, env)) if path.is_file()]
        host = next((path for path in hosts if _has_exec(path)), None)
        if host is None:
            refused.append(f"{cli} has no Python language host ({HOST} with {EXEC} beside it)")
            continue
        return Engine(cli, host, text, "path"), refused
    return None, refused


def yaml_host(engine: Path, own: Path, env: Mapping[str, str]) -> Path | None:
    """The language host for YAML that an engine would start: beside it, in our own folder of commands, or on PATH."""
    beside = [folder / YAML_HOST for folder in (engine.parent, engine.resolve().parent, own)]
    return next((path for path in (*beside, *executables(YAML_HOST, env)) if os.access(path, os.X_OK)), None)


def wants_yaml(root: Path) -> bool:
    """Whether the project's program is written in YAML."""
    try:
        text = (root / "Pulumi.yaml").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"""(?m)^runtime:\s*(?:\{?\s*name:\s*)?["']?yaml\b""", text) is not None


def _has_exec(host: Path) -> bool:
    return (host.parent / EXEC).is_file() or (host.resolve().parent / EXEC).is_file()


def cached(recipe: Recipe, engines: Path, sources: Iterable[str] = ("download", "modules")) -> Engine | None:
    """An engine that an earlier set-up finished."""
    for source in sources:
        folder = recipe.folder(engines, source)
        if (folder / "engine.json").is_file() and complete(folder):
            return Engine(folder / CLI, folder / HOST, recipe.version, source)
    return None


def complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in REQUIRED)


def finish(folder: Path, recipe: Recipe, source: str, env: Mapping[str, str]) -> None:
    """Proves that a folder holds a working engine of the right version, and seals it with `engine.json`.

    Raises:
        SetupError: it does not; the folder must not be used.
    """
    for name in (*REQUIRED, DYNAMIC):
        if (folder / name).is_file():
            (folder / name).chmod(0o755)
    if not complete(folder):
        missing = [name for name in REQUIRED if not os.access(folder / name, os.X_OK)]
        raise SetupError(f"the engine from {source} lacks {', '.join(missing)}")
    said = run([folder / CLI, "version"], what="the new engine", deadline=60, env=env)
    if parse(said) != parse(recipe.version):
        raise SetupError(f"the engine from {source} says it is {said.strip()!r}, not {recipe.version}")
    record = {"version": recipe.version, "source": source, "recipe": recipe.digest}
    (folder / "engine.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


def sweep_leftovers(engines: Path) -> None:
    """Removes what killed set-ups left half-made. Call it with the cache locked."""
    for folder in engines.glob("*/.making-*"):
        shutil.rmtree(folder, ignore_errors=True)
