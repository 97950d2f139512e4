"""Pulumi's official plugin for the package `command`: stacks with hosts entered by SSH use it.

Where its host does not answer, nothing is said and nothing is missing: sweepstack's own stand-in acts then.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.engine_download import check_digest, find_digest
from scripts.lib.errors import Cancelled, SetupError
from scripts.lib.network import download, fetch_text, first_answering
from scripts.lib.places import target
from scripts.lib.wheels import put_in_place, scratch_folder

VERSION = "1.2.1"
"""As pyproject.toml pins the Python package: they are one release."""
RELEASES = "https://github.com/pulumi/pulumi-command/releases/download/v{version}/"
MIRROR = "https://get.pulumi.com/releases/plugins/"
PROGRAM = "pulumi-resource-command"
DEADLINE = 300.0


def folder(cache: Path) -> Path:
    """Where it is kept, and looked for by sweepstack/provider/command/select.py."""
    return cache / "command" / VERSION


def install(cache: Path, console: Console, cancel: threading.Event) -> None:
    """Fetches it into the cache, where it is not there yet and its host answers (up to 4 s). What goes wrong is a
    note: set-up goes on without it. Raises Cancelled."""
    final = folder(cache)
    if os.access(final / PROGRAM, os.X_OK):
        return
    system, machine = target()
    name = f"{PROGRAM}-v{VERSION}-{system}-{machine.replace('x64', 'amd64')}.tar.gz"
    bases = [RELEASES.format(version=VERSION), MIRROR]
    found = first_answering([base + name for base in bases])
    if found is None:
        return
    with console.step(f"command plugin {VERSION}", f"official download, about 15 MB, from {found}") as step:
        made = scratch_folder(final.parent)

        def progress(text: str) -> None:
            step.note = text

        try:
            download(found, made / name, deadline=DEADLINE, cancel=cancel, progress=progress)
            said = fetch_text(bases[0] + f"pulumi-command_{VERSION}_checksums.txt")
            digest = find_digest(said, name) if said else None
            if digest is not None:
                check_digest(made / name, digest)
            step.note = "checksum verified" if digest else "no checksum was to be had: trusted as HTTPS gave it"
            _unpack(made / name, made / PROGRAM)
            (made / name).unlink()
            put_in_place(made, final)
        except Cancelled:
            raise
        except (SetupError, OSError) as error:
            step.note = f"not installed: {error}. sweepstack's stand-in acts in its place"
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _unpack(archive: Path, to: Path) -> None:
    """Takes the program out of the archive, and nothing else."""
    try:
        with tarfile.open(archive) as tar:
            member = next((one for one in tar if one.isfile() and one.name.rsplit("/", 1)[-1] == PROGRAM), None)
            source = tar.extractfile(member) if member is not None else None
            if source is None:
                raise SetupError(f"{archive.name} holds no {PROGRAM}")
            with source, to.open("wb") as file:
                shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError) as error:
        raise SetupError(f"{archive.name}: cannot be unpacked: {error}") from error
    to.chmod(0o755)
