"""The official engine: where it is, how its checksum is checked, what is taken out of its archive."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.engine import Recipe, finish
from scripts.lib.errors import SetupError
from scripts.lib.network import download, fetch_text, first_answering
from scripts.lib.places import target
from scripts.lib.wheels import put_in_place, scratch_folder

RELEASES = "https://github.com/pulumi/pulumi/releases/download/v{version}/"
MIRROR = "https://get.pulumi.com/releases/sdk/"
DEADLINE = 900.0


def archive_name(version: str) -> str:
    system, machine = target()
    return f"pulumi-v{version}-{system}-{machine}.tar.gz"


def reachable(version: str) -> str | None:
    """The base address of the first official host that has this version for this machine. Blocks for up to 4 s."""
    name = archive_name(version)
    found = first_answering([base + name for base in (RELEASES.format(version=version), MIRROR)])
    return found.removesuffix(name) if found else None


def install(
    recipe: Recipe, base: str, engines: Path, env: Mapping[str, str], console: Console, cancel: threading.Event
) -> None:
    """Fetches, checks and unpacks the official engine into the cache.

    Raises:
        SetupError: a cut, a wrong checksum, or an archive without an engine. The cache holds nothing of it then.
    """
    final = recipe.folder(engines, "download")
    name = archive_name(recipe.version)
    with console.step(f"engine {recipe.version}", f"official download, about 100 MB, from {base}") as step:
        made = scratch_folder(final.parent)
        try:
            archive = made / name

            def progress(text: str) -> None:
                step.note = text

            download(base + name, archive, deadline=DEADLINE, cancel=cancel, progress=progress)
            expected = published_digest(recipe.version, name)
            if expected is not None:
                check_digest(archive, expected)
            step.note = "checksum verified" if expected else "no checksum file was to be had: trusted as HTTPS gave it"
            unpack(archive, made)
            archive.unlink()
            finish(made, recipe, "download", env)
            put_in_place(made, final)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def published_digest(version: str, name: str) -> str | None:
    """SHA-256 of the archive as the release's checksum file has it; None when there is no such file."""
    text = fetch_text(RELEASES.format(version=version) + f"pulumi-{version}-checksums.txt")
    if text is None:
        return None
    digest = find_digest(text, name)
    if digest is None:
        raise SetupError(f"the release's checksum file does not list {name}")
    return digest


def find_digest(checksums: str, name: str) -> str | None:
    """The digest of one file in the usual `<hex>  <name>` format."""
    for line in checksums.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].lstrip("*") == name:
            return words[0].lower()
    return None


def check_digest(archive: Path, expected: str) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise SetupError(f"{archive.name}: SHA-256 is {found}, the release says {expected}; nothing of it was used")


def unpack(archive: Path, folder: Path) -> None:
    """Takes the engine, its language hosts and its Python parts out of the archive, flat, and nothing else (no links,
    no other names)."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.rsplit("/", 1)[-1]
                ours = name.startswith("pulumi-") and ("python" in name or "language" in name)
                if not member.isfile() or not (name == "pulumi" or ours):
                    continue
                source = tar.extractfile(member)
                if source is not None:
                    with source, (folder / name).open("wb") as file:
                        shutil.copyfileobj(source, file)
                    (folder / name).chmod(0o755)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SetupError(f"{archive.name}: cannot be unpacked: {error}") from error
