"""The environment variables, secrets and Python environment of cells, setups and probes.

With them the network settings of a box's processes, as variables: mirrors, caches and the platform's proxy.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweepstack.onbox.common import placeholders
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.processes import WORKER_VARIABLE
from sweepstack.onbox.runner.records import Entry, say
from sweepstack.onbox.runner.sealing import CellFailure

SECRETS = "secrets.json"
KEEP = "keep.txt"
"""In a version's environment: packages of the image that no set-up replaces, as a constraint file of pip."""
REDACTED = "***"
FINDS = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "MODULEPATH")
SHORTEST_SECRET = 6
"""Characters. Shorter values are not masked: they would occur in many places of a log."""

HOOK_SECONDS = 20.0
OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that a shell sets by itself."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
DOMAIN = "_DOMAIN"
"""ModelScope takes a host and puts the scheme before it by itself."""
NEAR = ("127.0.0.1", "localhost", "::1")
OFF = "Next: mend it on the box, or switch it off in the stack file (overrides: <platform>: network: {proxy: false})"

_said: dict[str, dict[str, str]] = {}  # the proxy's shell line → the variables that it set


class SecretsRefused(SweepstackError, OSError):
    """The box's secrets can't be used. The message says why and what to do, and holds no value."""


def fill(text: str, values: Mapping[str, Any], quote: Callable[[str], str]) -> str:
    """`text` with its placeholders replaced by quoted values. Raises CellFailure for a name that is not in `values`."""
    try:
        return placeholders.fill(text, values, quote)
    except KeyError as error:
        raise CellFailure(f"{{{error.args[0]}}}: the cell has no such parameter") from None


def values_of(entry: Entry, out: str, checkpoints: str = "") -> dict[str, Any]:
    """The values of the placeholders in a cell's command and variables. A parameter named `checkpoints` comes first."""
    return {"checkpoints": checkpoints, **entry.params, "cell": entry.cell, "name": entry.cell, "out": out}


def folder_of(home: Path, entry: Entry) -> Path | None:
    """The folder of a version's virtual environment; None for a version without a setup."""
    return home / "envs" / hex_of(entry.prepared)[:16] if entry.setup else None


def python_of(home: Path, spec: Mapping[str, Any], entry: Entry) -> str:
    """The interpreter that a version's cells run as `python`."""
    folder = folder_of(home, entry)
    return str(folder / "bin" / "python") if folder else str(spec["python"])


def search(home: Path, spec: Mapping[str, Any], entry: Entry) -> dict[str, str]:
    """The variables by which a version's command finds its Python and what that imports. No secret is among them."""
    found = {"PATH": _path(home, spec, entry)}
    for given in (spec.get("env") or {}, entry.env):
        found.update({name: str(given[name]) for name in FINDS if name in given})
    return found


def _path(home: Path, spec: Mapping[str, Any], entry: Entry) -> str:
    folder = folder_of(home, entry)
    own = [str(folder / "bin")] if folder else []
    return ":".join([*own, os.path.dirname(spec["python"]), os.environ.get("PATH", os.defpath)])


def variables(home: Path, spec: Mapping[str, Any], entry: Entry, values: Mapping[str, Any] | None) -> dict[str, str]:
    """The environment variables of a version's processes. Only PATH is inherited, so that the spec names all others.

    `values`: the placeholders' values; None for a setup: then variables with placeholders, and the checkpoint helper,
    are left out. Raises CellFailure for an unknown placeholder, SecretsRefused, NetworkRefused.
    """
    folder = folder_of(home, entry)
    env = {
        "PATH": _path(home, spec, entry),
        "HOME": os.path.expanduser("~"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    env.update(network(spec, env, home.parent.parent))
    for given in (spec.get("env") or {}, entry.env):
        for name, text in given.items():
            if values is not None:
                env[name] = fill(str(text), values, str)
            elif not placeholders.PLACEHOLDER.search(str(text)):
                env[name] = str(text)
    env.update(secrets(home, spec.get("secrets") or []))
    env.update(SWEEPSTACK_BOX_ID=str(spec["native_id"]), PYTHONUNBUFFERED="1")
    if os.environ.get(WORKER_VARIABLE):
        env[WORKER_VARIABLE] = os.environ[WORKER_VARIABLE]
    if folder:
        env["VIRTUAL_ENV"] = str(folder)
        constrain(env, folder)
    if values is not None:
        helper = str(home / "checkpoint")
        env["PYTHONPATH"] = ":".join([helper, env["PYTHONPATH"]] if env.get("PYTHONPATH") else [helper])
    return env


def constrain(env: dict[str, str], folder: Path) -> None:
    """Lets every pip and uv that is started with `env` keep to the constraint file, besides files of the job's own."""
    path = folder / KEEP
    if not path.is_file():
        return
    own = str(path) if " " not in str(path) else path.as_uri()  # both tools take several files, parted by spaces
    for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):
        env[name] = " ".join([own, *([env[name]] if env.get(name) else [])])


def secrets(home: Path, names: Collection[str]) -> dict[str, str]:
    """The values of the named secrets in secrets.json. Raises SecretsRefused, also when other users can read the file.

    It is read at every start of a process: values may be replaced while the queue runs.
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
    """`text` with the secrets masked."""
    for value in _hidden(values):
        text = text.replace(value, REDACTED)
    return text


def redact_file(path: Path, values: Collection[str]) -> None:
    """Overwrites the secrets in a file by as many asterisks. No process may write to the file any more."""
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
    """The values to mask, the longest first: a value that begins another one would leave its rest readable."""
    return sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)


class NetworkRefused(SweepstackError, OSError):
    """The box's proxy can't be turned on. The message says why and what to do."""


def network(spec: Mapping[str, Any], base: Mapping[str, str], box: Path) -> dict[str, str]:
    """The network settings in spec.json as variables. `base`: the variables before; `box`: the box's folder. Raises
    NetworkRefused.

    With the proxy on, local addresses and mirrors do not go through it: a proxy for addresses abroad slows or breaks
    them. `SWEEPSTACK_PROXY_ON` and `…_OFF` hold its shell lines, for a set-up or job that uses it for a single call.
    """
    said = spec.get("network") or {}
    found = {name: _at_home(str(value)) for name, value in (said.get("env") or {}).items()}
    found.update((name, str(box / str(path))) for name, path in (said.get("folders") or {}).items())
    mirrors = [host for name, value in found.items() if (host := _host(name, value))]
    line = str(said.get("proxy_on") or "")
    if line and said.get("proxy_always"):
        set_by_it = _turned_on(line, base)
        found.update(set_by_it)
        if any(found.get(name) for name in PROXIES):
            before = f"{found.get('no_proxy', '')},{found.get('NO_PROXY', '')}".split(",")
            past = ",".join(dict.fromkeys(host.strip() for host in [*before, *NEAR, *mirrors] if host.strip()))
            found.update(no_proxy=past, NO_PROXY=past)
    for name, text in (("SWEEPSTACK_PROXY_ON", line), ("SWEEPSTACK_PROXY_OFF", str(said.get("proxy_off") or ""))):
        if text:
            found[name] = text
    return found


def _turned_on(line: str, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that the proxy's shell line sets. The line is run once, and its result kept."""
    if line not in _said:
        # bash, since such lines use `source`, which a plain sh does not have. Their output is ignored.
        script = f"{{ {line}\n}} >&2 || exit\nexec env -0"
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                env=dict(base),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=HOOK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise NetworkRefused(f"the proxy's line did not end within {HOOK_SECONDS:g} s ({line}). {OFF}") from None
        except OSError as error:
            raise NetworkRefused(f"the proxy's line needs bash, and that can't be run ({error}). {OFF}") from error
        if done.returncode:
            last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise NetworkRefused(f"the proxy's line failed with {done.returncode}: {last[:200]} ({line}). {OFF}")
        pairs = (one.decode("utf-8", "surrogateescape").partition("=") for one in done.stdout.split(b"\0") if one)
        _said[line] = {
            name: value for name, _, value in pairs if name not in OWN and base.get(name) != value and "\n" not in name
        }
        if not _said[line]:
            say(f"the proxy's line set nothing, so there is none: {line}")
    return dict(_said[line])


def _at_home(value: str) -> str:
    return os.path.expanduser(value) if value.startswith("~/") else value


def _host(name: str, value: str) -> str:
    """The host of a mirror: of a URL, or of a `…_DOMAIN` with all hosts below it; "" for another variable."""
    if name.endswith(DOMAIN) and "://" not in value:
        return value[4:] if value.startswith("www.") else value
    try:
        return (urlsplit(value).hostname or "") if "://" in value else ""
    except ValueError:
        return ""
