"""Writes the commands that set-up installs: a launcher in `.venv/bin`, shims in the user's bin."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts.lib.engine import is_ours
from scripts.lib.places import Places

SHIMS = ("pulumi", "sweepctl")


def launcher_text(places: Places, engine: str, *, offline: bool) -> str:
    """The launcher for this checkout's venv and one engine."""
    text = (places.root / "scripts" / "launcher").read_text(encoding="utf-8")
    for mark, value in (
        ("@PYTHON@", shlex.quote(str(places.python))),
        ('"@ENGINE@"', repr(engine)),
        ("@OFFLINE@", "yes" if offline else "no"),
    ):
        text = text.replace(mark, value)
    return text


def launcher_is_current(places: Places, engine: str, *, offline: bool) -> bool:
    """Whether `.venv/bin/pulumi` is what `install_launcher` would write."""
    try:
        found = (places.bin / "pulumi").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return found == launcher_text(places, engine, offline=offline)


def install_launcher(places: Places, engine: str, *, offline: bool) -> None:
    """Writes `.venv/bin/pulumi`, in one step. Idempotent."""
    if not launcher_is_current(places, engine, offline=offline):
        write_command(places.bin / "pulumi", launcher_text(places, engine, offline=offline))


def install_shims(places: Places, env: Mapping[str, str]) -> list[str]:
    """Puts `pulumi` and `sweepctl` into ~/.local/bin, for shells in which the venv is not active.

    Never touches a file that is not its own. Idempotent. Returns what a person should know, one line each.
    """
    text = (places.root / "scripts" / "shim").read_text(encoding="utf-8")
    notes: list[str] = []
    for name in SHIMS:
        shim = places.user_bin / name
        if shim.is_symlink() or shim.exists():
            if not is_ours(shim):
                notes.append(
                    f"{shim} is not ours and was left alone: in this checkout activate .venv, or say `.venv/bin/{name}`"
                )
                continue
            if shim.read_text(encoding="utf-8") == text:
                continue
        try:
            places.user_bin.mkdir(parents=True, exist_ok=True)
            write_command(shim, text)
        except OSError as error:
            notes.append(f"{shim} cannot be written ({error.strerror}): activate .venv, or say `.venv/bin/{name}`")
            continue
        notes.append(f"installed {shim}: runs the {name} of the checkout you are in")
    return notes + path_notes(places, env)


def path_notes(places: Places, env: Mapping[str, str]) -> list[str]:
    """What keeps plain `pulumi` from working in a fresh shell, and the line that cures it."""
    entries = [Path(entry).absolute() for entry in env.get("PATH", "").split(os.pathsep) if entry]
    if places.user_bin not in entries:
        line = f'export PATH="{_home(places)}:$PATH"'
        return [f"in new shells `pulumi` and `sweepctl` need this line in your profile:  {line}"]
    notes = []
    for name in SHIMS:
        first = shutil.which(name, path=env.get("PATH"))
        if first is not None and not is_ours(Path(first)) and Path(first).parent not in (places.bin, places.user_bin):
            notes.append(f"{first} comes first on PATH: activate .venv, or say `.venv/bin/{name}`, in this checkout")
    return notes


def _home(places: Places) -> str:
    home = os.path.expanduser("~")
    text = str(places.user_bin)
    return "$HOME" + text[len(home) :] if text.startswith(home + os.sep) else text


def write_command(path: Path, text: str) -> None:
    """Writes an executable file so that half of it is never run."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o755)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
