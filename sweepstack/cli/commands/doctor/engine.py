"""Checks of the Pulumi engine, its Python language host, our plugin, and the backend."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from sweepstack.cli import launcher
from sweepstack.cli.commands.doctor.finding import Check, Finding, ask, fail, first_line, ok, unknown, warn
from sweepstack.core.paths import PACKAGE, engine_fix, installed, package_fix, shipped
from sweepstack.evidence.sweep_holder import file_folder
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.sweep.engine_mend import engine_lock
from sweepstack.status.engine.call import find_engine

SKEW_SECONDS = 5.0
PLUGIN_SECONDS = 30.0
NO_ENGINE = "127.0.0.1:9"
"""An address without an engine: the plugin prints its port before it connects, and is ended then."""
_MINOR = re.compile(r"v?(\d+)\.(\d+)")


def checks(root: Path | None) -> Iterator[tuple[str, Check]]:
    """(name, check), in the order of the table. `root`: the project, None outside of one."""
    yield "engine", engine
    yield "language host", language_host
    yield "plugin", plugin
    yield "backend", lambda: backend(root)
    yield "passphrase", passphrase


def engine() -> list[Finding]:
    try:
        found = find_engine()
    except SweepstackError as error:
        return [fail("engine", str(error), engine_fix())]
    said = ask([found, "version"])
    if said.code != 0:
        return [fail("engine", f"{found} does not run: {said.first}", engine_fix())]
    wanted = _wanted()
    version = said.first
    if wanted and _number(version) < _number(wanted):
        return [fail("engine", f"{version} at {found}", f"sweepstack needs {wanted} or newer: {engine_fix()}")]
    return [ok("engine", f"{version} at {found}")]


def _wanted() -> str:
    try:
        return shipped(".pulumi-version").read_text().strip()
    except OSError:
        return ""


def _number(version: str) -> tuple[int, int]:
    match = _MINOR.search(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def language_host() -> list[Finding]:
    """Whether the engine can find the language host: beside itself or on its PATH."""
    try:
        command = find_engine()
    except SweepstackError:
        return [unknown("language host", "there is no engine", engine_fix())]
    folders = [str(Path(command).parent), str(Path(command).resolve().parent)]
    with suppress(OSError, UnicodeDecodeError):
        inside = re.search(r"""^ENGINE = ['"](.+)['"]$""", Path(command).read_text("utf-8"), re.MULTILINE)
        folders += [str(Path(inside[1]).parent)] if inside else []
    found: str | None = None
    for name in ("pulumi-language-python", "pulumi-language-python-exec"):
        found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
        if found is None:
            return [fail("language host", f"{name} is neither beside the engine nor on PATH", engine_fix())]
    return [ok("language host", str(Path(str(found)).parent))]


def plugin() -> list[Finding]:
    """Starts our plugin as the engine does, and waits for the port that it prints."""
    folder = Path(sys.executable).parent if installed() else PACKAGE / "provider"
    entry = folder / "pulumi-resource-sweepstack"
    if not os.access(entry, os.X_OK):
        return [fail("plugin", f"{entry} is not there", package_fix())]
    begun = time.monotonic()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = dict(os.environ) | {"PATH": path}  # the same as the engine's launcher sets
    process = subprocess.Popen(
        [str(entry), NO_ENGINE], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda out: said.append(out.readline()), args=(process.stdout,), daemon=True)
    reader.start()
    reader.join(PLUGIN_SECONDS)
    process.kill()
    _, err = process.communicate()
    if said and said[0].strip().isdigit():
        return [ok("plugin", f"{entry} starts in {time.monotonic() - begun:.1f} s")]
    why = first_line(err.decode("utf-8", "replace")[-2000:]) or f"no port within {PLUGIN_SECONDS:.0f} s"
    return [fail("plugin", f"{entry} does not start: {why}", package_fix())]


def backend(root: Path | None) -> list[Finding]:
    """Whether the backend answers, and whether its clock agrees with this machine's."""
    try:
        command = [find_engine(), "whoami", "--verbose", "--json", "--non-interactive"]
    except SweepstackError:
        return [unknown("backend", "there is no engine", engine_fix())]
    said = ask(command, cwd=root)
    try:
        url = str(json.loads(said.out)["url"])
    except (ValueError, KeyError, TypeError):
        return [fail("backend", said.first or "no answer", "set PULUMI_BACKEND_URL, or pulumi login" + _by_launcher())]
    folder = file_folder(url)
    if folder is None:
        return [ok("backend", _without_user(url))]
    where = f"{url} (this machine's disk)"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return [fail("backend", f"{where} can't be written to", f"make {folder} this user's")]
    kept = ok("backend", where)
    if os.environ.get("CI"):
        kept = warn("backend", where, "a CI machine forgets it: set PULUMI_BACKEND_URL to a place that stays")
    return [kept, clock(folder)]


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def clock(folder: Path) -> Finding:
    """Compares this machine's clock with that of the backend's disk, by a new file: a network disk has its own."""
    probe = folder / f".sweepctl-doctor-{uuid.uuid4().hex}"
    try:
        before = time.time()
        probe.touch(exist_ok=False)
        theirs, after = probe.stat().st_mtime, time.time()
    except OSError as error:
        return fail("clock", f"{folder} can't be written to: {error.strerror}", f"make {folder} this user's")
    finally:
        probe.unlink(missing_ok=True)
    skew = 0.0 if before - 1 <= theirs <= after + 1 else theirs - (before + after) / 2
    newest = max((path.stat().st_mtime for path in folder.glob(".pulumi/stacks/**/*.json*")), default=0.0)
    if abs(skew) > SKEW_SECONDS:
        return fail("clock", f"{skew:+.0f} s against the backend's disk", "set the clock (NTP): approvals expire by it")
    if newest - after > SKEW_SECONDS:
        return fail("clock", f"the state was written {newest - after:.0f} s in the future", "set the clock (NTP)")
    return ok("clock", "agrees with the backend's disk")


def lock(folder: Path, stack: str, project: str) -> Finding:
    """The engine's lock on a stack, and whether the process that took it still runs."""
    found, cancel = engine_lock(folder, stack, project), f"pulumi cancel --stack {stack}"
    if found is None:
        return ok("engine's lock", "free")
    if not found.reads:
        return unknown("engine's lock", found.words, f"{cancel}    (if nothing runs)")
    if found.ended is None:
        return unknown("engine's lock", found.words, f"look whether it still runs there; if not: {cancel}")
    if not found.ended:
        return warn("engine's lock", found.words, "wait for it to end")
    return fail("engine's lock", found.words, cancel)


def _by_launcher() -> str:
    """The other way out where `pulumi` is the engine itself, which begins with no place for states; else empty."""
    try:
        ours = launcher.is_ours(Path(find_engine()))
    except SweepstackError:
        return ""
    return "" if ours or not installed() else "; or sweepctl init, whose pulumi needs neither login nor passphrase"


def passphrase() -> list[Finding]:
    file = os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if file:
        if os.access(file, os.R_OK):
            return [ok("passphrase", f"in the file {file}")]
        fix = "correct PULUMI_CONFIG_PASSPHRASE_FILE, or unset it"
        return [fail("passphrase", f"{file} can't be read", fix)]
    if os.environ.get("PULUMI_CONFIG_PASSPHRASE"):
        return [ok("passphrase", "set")]
    if fix := _by_launcher():
        return [warn("passphrase", "not set: the engine asks for one", f"set PULUMI_CONFIG_PASSPHRASE{fix}")]
    return [ok("passphrase", "empty: nothing in a stack is a secret (secrets stay in this shell's environment)")]
