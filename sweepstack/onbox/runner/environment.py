"""What a cell, a setup and a probe see: variables, secrets, and the environment that leads the path."""

from __future__ import annotations

import json
import mmap
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.runner.network import network
from sweepstack.onbox.runner.records import Entry
from sweepstack.onbox.runner.sealing import CellFailure

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""What is filled in; `${NAME}` is the shell's."""
SECRETS = "secrets.json"
REDACTED = "***"
SHORTEST_SECRET = 6
"""Characters. What is shorter would be found all over a log, and is no secret for long."""


class SecretsRefused(SweepstackError, OSError):
    """The box's secrets can't be used. The message says why and what to do, and holds no value."""


def fill(text: str, values: Mapping[str, Any], quote: Callable[[str], str]) -> str:
    """`text` with its placeholders replaced. Raises CellFailure for a name that `values` does not hold."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise CellFailure(f"{match[0]}: the cell has no such parameter")
        found = values[match[1]]
        return quote(found if isinstance(found, str) else json.dumps(found))

    return PLACEHOLDER.sub(value, text)


def values_of(entry: Entry, out: str, checkpoints: str = "") -> dict[str, Any]:
    """What the placeholders of a cell's command and variables stand for. A parameter may be called `checkpoints`."""
    return {"checkpoints": checkpoints, **entry.params, "cell": entry.cell, "name": entry.cell, "out": out}


def folder_of(home: Path, entry: Entry) -> Path | None:
    """The virtual environment of a version; None for one without a setup."""
    return home / "envs" / hex_of(entry.prepared)[:16] if entry.setup else None


def python_of(home: Path, spec: Mapping[str, Any], entry: Entry) -> str:
    """The interpreter that `python` is for the cells of a version."""
    folder = folder_of(home, entry)
    return str(folder / "bin" / "python") if folder else str(spec["python"])


def variables(home: Path, spec: Mapping[str, Any], entry: Entry, values: Mapping[str, Any] | None) -> dict[str, str]:
    """The environment of a version's processes. Nothing is inherited but the path: what they see is written down.

    `values`: what placeholders stand for; without it, variables that need some are left out, and so is the checkpoint
    helper (a setup's case). Raises CellFailure for an unknown placeholder, SecretsRefused, NetworkRefused.
    """
    folder = folder_of(home, entry)
    path = [os.path.dirname(spec["python"]), os.environ.get("PATH", os.defpath)]
    env = {
        "PATH": ":".join([*([str(folder / "bin")] if folder else []), *path]),
        "HOME": os.path.expanduser("~"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    env.update(network(spec, env))
    for given in (spec.get("env") or {}, entry.env):
        for name, text in given.items():
            if values is not None:
                env[name] = fill(str(text), values, str)
            elif not PLACEHOLDER.search(str(text)):
                env[name] = str(text)
    env.update(secrets(home, spec.get("secrets") or []))
    env.update(SWEEPSTACK_BOX_ID=str(spec["native_id"]), PYTHONUNBUFFERED="1")
    if folder:
        env["VIRTUAL_ENV"] = str(folder)
    if values is not None:
        helper = str(home / "checkpoint")
        env["PYTHONPATH"] = ":".join([helper, env["PYTHONPATH"]] if env.get("PYTHONPATH") else [helper])
    return env


def secrets(home: Path, names: Collection[str]) -> dict[str, str]:
    """The values of the named secrets, out of secrets.json. Raises SecretsRefused, also when others can read the file.

    Read whenever a process is started: values may be renewed while the queue goes on.
    """
    if not names:
        return {}
    path = home / SECRETS
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as handle:
            status = os.fstat(handle.fileno())
            mode = stat.S_IMODE(status.st_mode)
            if not stat.S_ISREG(status.st_mode) or mode & 0o077 or status.st_uid != os.geteuid():
                why = f"{path} can be read by others (mode {mode:04o}, owner {status.st_uid})"
                raise SecretsRefused(f"{why}: make it this user's alone by chmod 600 {path}")
            found = json.loads(handle.read())
        missing = [name for name in names if not isinstance(found.get(name), str)]
    except SecretsRefused:
        raise
    except (OSError, ValueError, AttributeError) as error:  # the words of a JSON error hold no value
        raise SecretsRefused(f"{path} can't be read: {type(error).__name__}; run `pulumi up` again") from None
    if missing:
        raise SecretsRefused(f"{path} lacks {', '.join(missing)}; run `pulumi up` again with them set")
    return {name: found[name] for name in names}


def redacted(text: str, values: Collection[str]) -> str:
    """`text` without the secrets in it."""
    for value in _hidden(values):
        text = text.replace(value, REDACTED)
    return text


def redact_file(path: Path, values: Collection[str]) -> None:
    """Overwrites the secrets in a file by as many asterisks. Of a file that nobody writes to any more."""
    words = [value.encode("utf-8") for value in _hidden(values)]
    if not words:
        return
    try:
        with open(path, "r+b") as handle, mmap.mmap(handle.fileno(), 0) as content:
            for word in words:
                place = content.find(word)
                while place >= 0:
                    content[place : place + len(word)] = b"*" * len(word)
                    place = content.find(word, place + len(word))
    except (FileNotFoundError, ValueError):
        pass  # an empty file can't be mapped, and holds none


def _hidden(values: Collection[str]) -> list[str]:
    """The values that are masked, the longest first: one that begins another would leave the rest of it legible."""
    return sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)
