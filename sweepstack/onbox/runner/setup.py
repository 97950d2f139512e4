"""Before a version's first cell: makes its Python environment, runs its setup, smoke run and probe.

Packages of the box's image that no set-up replaces: its torch is built for its card and driver.

The smoke run on a box: a batch or two of the job, with the first cell's values.

It is `job.smoke` with `on: box`. It runs after the set-up and before the first cell of its version, once on a box, and
leaves only its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.canonical import digest_of, hex_of
from sweepstack.onbox.common.groups import is_there
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.common.processes import signal_group
from sweepstack.onbox.runner import nodes
from sweepstack.onbox.runner.attempt import Environment, describe
from sweepstack.onbox.runner.code import CodeCheck
from sweepstack.onbox.runner.environment import (
    KEEP,
    NetworkRefused,
    SecretsRefused,
    constrain,
    fill,
    folder_of,
    python_of,
    redact_file,
    redacted,
    values_of,
    variables,
)
from sweepstack.onbox.runner.mounts import mount_variables, mounts_of, prepare
from sweepstack.onbox.runner.probe import gpus_asked, probe, understood
from sweepstack.onbox.runner.records import Entry, Journal, now, say
from sweepstack.onbox.runner.sealing import CellFailure
from sweepstack.onbox.runner.steps import SetupFailed, Steps, asked
from sweepstack.onbox.runner.upload import Uploads

SETUP_SECONDS = 3600.0
"""A setup's deadline, unless spec.json has `setup_seconds`."""
AT_ONCE = 4
LASTING = {"commands": "setup", "smoke": "smoke run"}
"""Stages that run once on a box, each with a log of its own; the journal names them by their digests."""
SITES = """
import json, site, sys
user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
print(json.dumps(site.getsitepackages() + user))
"""
LIBRARIES = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


class Setups:
    """The versions that this runner has prepared, is preparing, or could not prepare. For the main thread.

    This runner does not try a failed version again: its cells stay pending, and the next runner tries again.
    """

    def __init__(
        self,
        home: Path,
        journal: Journal,
        announce: Callable[[], None],
        wake: Callable[[], None],
        uploads: Uploads,
    ) -> None:
        self._uploads = uploads
        self._home, self._journal, self._announce, self._wake = home, journal, announce, wake
        self._done: dict[str, str] = {}  # setup or version → why it failed; "" when it succeeded
        self._begun: dict[str, tuple[Future[str], Entry, float, str]] = {}
        self._described: dict[str, Future[Environment]] = {}
        self._pool, self._describing = ThreadPoolExecutor(AT_ONCE), ThreadPoolExecutor(1)
        self._running: set[int] = set()
        self._stopping = threading.Event()
        self.code = CodeCheck(home)
        self._changed: dict[str, tuple[int, int]] = {}  # code that was changed on the box → its list's signature

    def ready(self, entry: Entry, spec: Mapping[str, Any]) -> bool | None:
        """Whether cells of this version may start. None: not yet. False: not with this runner, or not before the code
        is shipped again. Begins missing stages. Reads the code at each call that may lead to a start."""
        if not self._is_its_code(entry):
            return False
        known = self._done.get(entry.work)
        if known is not None:
            return not known
        if entry.work in self._begun or entry.prepared in self._begun:
            return None
        failed = self._done.get(entry.prepared)
        if failed:
            self._done[entry.work] = failed
            return False
        try:
            if entry.setup and not self._there(entry):
                env = variables(self._home, spec, entry, None)
                elsewhere = self._journal.prepared_elsewhere(entry.prepared)
                if elsewhere is not None:
                    return self._waits(entry, entry.prepared, elsewhere)
                self._announce()
                self._journal.append("setup-started", setup=entry.prepared, code=entry.code)
                say(f"setup {hex_of(entry.prepared)[:16]} begins")
                self._begin(entry.prepared, entry, "commands", self._prepare, entry, dict(spec), env)
                return None
            waits = self._mounted(entry, spec)
            if waits is not True:
                return waits
            waits = self._on_nodes(entry, spec)
            if waits is not True:
                return waits
            waits = self._tried(entry, spec)
            if waits is not True:
                return waits
            env = variables(self._home, spec, entry, values_of(entry, str(self._home)))
        except SecretsRefused as error:
            return self._failed(entry, entry.work, "secrets", str(error))
        except NetworkRefused as error:
            return self._failed(entry, entry.work, "network", str(error))
        except CellFailure:  # the same error is raised when the cell is started
            env = {}
        code = self._code(entry)
        gpus = gpus_asked(spec)
        if not env or not code.is_dir() or not (gpus or understood(entry.run)):
            self._done[entry.work] = ""
            return True
        self._begin(entry.work, entry, "probe", probe, code, entry.run, env, gpus, self._running)
        return None

    def _waits(self, entry: Entry, key: str, why: str) -> bool | None:
        """For a stage that another worker runs, or that failed there (`why`), which the journal has; as `ready`."""
        if not why:
            return None
        self._done[key] = self._done[entry.work] = why
        return False

    def _mounted(self, entry: Entry, spec: Mapping[str, Any]) -> bool | None:
        """Whether the buckets of spec.json are ready; answers like `ready`. After the set-up, which may install
        rclone."""
        if not mounts_of(spec):
            return True
        key = digest_of(mounts_of(spec))
        known = self._known(key, entry)
        if known is None and key not in self._begun:
            env = variables(self._home, spec, entry, None)
            hidden = [env[one] for one in spec.get("secrets") or []]
            self._begin(key, entry, "mounts", self._mount, dict(spec), env, hidden)
        return known

    def _known(self, key: str, entry: Entry) -> bool | None:
        """Whether a stage that a version needs has passed; None when it has not ended."""
        why = self._done.get(key)
        if why:
            self._done[entry.work] = why
        return None if why is None else not why

    def _mount(self, spec: dict[str, Any], env: dict[str, str], hidden: list[str]) -> str:
        why = prepare(self._home.parent.parent, spec, env, hidden, self._uploads.ending)
        return why or self._uploads.connect(spec, env, hidden)

    def _on_nodes(self, entry: Entry, spec: Mapping[str, Any]) -> bool | None:
        """Whether the nodes of this version's cells are ready, where it has several; answers like `ready`."""
        if nodes.count_of(entry) == 1:
            return True
        cells = nodes.several()
        if cells is None:
            return self._failed(entry, entry.work, "nodes", nodes.LACKING)
        key = cells.key_of(entry, spec)
        known = self._known(key, entry)
        if known is None and key not in self._begun:
            say(f"the nodes of {short(entry.code)} are looked at")
            self._begin(key, entry, "nodes", cells.check, self._home, dict(spec), entry, self._running, self._stopping)
        return known

    def look_at_nodes_again(self, entry: Entry, spec: Mapping[str, Any]) -> None:
        """Before the next cell of this version starts: an attempt on several nodes failed, and one may be lost."""
        cells = nodes.several() if nodes.count_of(entry) > 1 else None
        if cells is not None:
            for key in (cells.key_of(entry, spec), entry.work):
                self._done.pop(key, None)

    def _tried(self, entry: Entry, spec: Mapping[str, Any]) -> bool | None:
        """Whether this version's smoke run has passed on this box, if there is one; answers like `ready`."""
        smoke = smoke_of(spec, entry)
        if smoke is None:
            return True
        key = key_of(smoke, entry)
        if key in self._journal.prepared:
            return True
        if self._done.get(key):
            self._done[entry.work] = self._done[key]
            return False
        if key not in self._begun:
            variables(self._home, spec, entry, values_of(entry, ""))  # raises before there is a log
            elsewhere = self._journal.prepared_elsewhere(key)
            if elsewhere is not None:
                return self._waits(entry, key, elsewhere)
            self._announce()
            self._journal.append("setup-started", setup=key, code=entry.code, stage="smoke")
            say(f"smoke run {hex_of(key)[:16]} begins, as {entry.cell}")
            things = dict(spec), smoke, entry, self._running, self._stopping
            self._begin(key, entry, "smoke", run_smoke, self._home, *things)
        return None

    def _is_its_code(self, entry: Entry) -> bool:
        """Whether the code on this box is the version's. Checked at each start, since a person may have edited it."""
        signature = self.code.signature(entry.code)
        if self._changed.get(entry.code) == signature:
            return False
        problem = self.code.problem(entry.code, not entry.setup or self._there(entry))
        if problem is None:
            self._changed.pop(entry.code, None)
            return True
        self._changed[entry.code] = signature
        self._announce()
        say(f"code {short(entry.code)}: {problem.reason}; no cell of it is started")
        details: dict[str, Any] = {
            "setup": entry.prepared,
            "code": entry.code,
            "stage": "code",
            "reason": problem.reason,
        }
        self._journal.append("setup-failed", files=problem.files, **details)
        return False

    def shipped_again(self) -> bool:
        """Whether changed code was shipped again, so that it may match now. True once for each time."""
        mended = [code for code, seen in self._changed.items() if self.code.signature(code) != seen]
        for code in mended:
            del self._changed[code]
        return bool(mended)

    def collect(self, spec: Mapping[str, Any]) -> list[str]:
        """Records the stages that have ended. Returns their names: commands, mounts, nodes, smoke, probe."""
        ended = [key for key, (future, *_) in self._begun.items() if future.done()]
        stages = [self._begun[key][3] for key in ended]
        for key in ended:
            future, entry, began, stage = self._begun.pop(key)
            reason = future.result()
            if reason and self._stopping.is_set():
                continue
            self._done[key] = reason
            if reason:
                self._failed(entry, key, stage, reason)
            elif stage == "nodes":
                found = nodes.several().result_of(self._home, entry, spec)
                self._announce()
                self._journal.append("nodes-checked", setup=entry.prepared, code=entry.code, nodes=found)
            elif stage in LASTING:
                seconds = round(time.monotonic() - began, 1)
                self._journal.append("setup-finished", setup=key, seconds=seconds)
                say(f"{LASTING[stage]} {hex_of(key)[:16]} finished after {seconds} s")
        return stages

    @property
    def busy(self) -> bool:
        return bool(self._begun)

    def environment(self, entry: Entry, spec: Mapping[str, Any]) -> Future[Environment]:
        """The environment for the record of a cell that starts now. It is described in the background, once, and again
        when something was installed or removed since."""
        python = python_of(self._home, spec, entry)
        known = self._described.get(python)
        if known is None or (known.done() and not known.result().stands()):
            self._described[python] = self._describing.submit(describe, python)
        return self._described[python]

    def stop(self, number: int) -> None:
        """Ends all running stages; the next runner begins them again."""
        self._stopping.set()
        for pid in list(self._running):
            signal_group(pid, number)

    def leaders(self) -> dict[int, str]:
        """The first processes of an earlier runner's setups: pid → start time."""
        found = {}
        for path in (self._home / "setup").glob("*.pid"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_bytes())
                found[int(record["pid"])] = str(record["start"])
        return found

    # -- in the main thread

    def _begin(self, key: str, entry: Entry, stage: str, work: Callable[..., str], *arguments: Any) -> None:
        future = self._pool.submit(work, *arguments)
        self._begun[key] = future, entry, time.monotonic(), stage
        future.add_done_callback(lambda _: self._wake())

    def _failed(self, entry: Entry, key: str, stage: str, reason: str) -> bool:
        self._done[key] = reason
        self._announce()
        setup = key if stage in LASTING else entry.prepared
        say(f"setup {hex_of(setup)[:16]} failed ({stage}): {reason}")
        details: dict[str, Any] = {"setup": setup, "code": entry.code, "stage": stage, "reason": reason}
        self._journal.append("setup-failed", **details)
        return False

    def _code(self, entry: Entry) -> Path:
        return self._home / "code" / hex_of(entry.code)

    def _there(self, entry: Entry) -> bool:
        folder = folder_of(self._home, entry)
        return entry.prepared in self._journal.prepared and bool(folder) and os.access(f"{folder}/bin/python", os.X_OK)

    # -- in a thread of its own

    def _prepare(self, entry: Entry, spec: dict[str, Any], env: dict[str, str]) -> str:
        """Makes the environment and runs the setup in it. Returns why that failed; "" on success."""
        name = hex_of(entry.prepared)[:16]
        log = self._home / "setup" / f"{name}.log"
        hidden = [env[one] for one in spec.get("secrets") or []]
        env["SWEEPSTACK_SETUP"] = name
        env.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        env.setdefault("PIP_NO_INPUT", "1")
        deadline = time.monotonic() + float(spec.get("setup_seconds", SETUP_SECONDS))
        kept: dict[str, str] = {}
        try:
            log.parent.mkdir(exist_ok=True)
            with open(log, "a") as handle:
                handle.write(f"[sweepstack] {now()} setup {name} begins\n")
            step = Steps(log, env, hidden, deadline, self._running, self._stopping)
            folder = folder_of(self._home, entry)
            assert folder is not None
            make_environment(folder, str(spec["python"]), step)
            kept = kept_versions(str(spec["python"]), spec.get("keep") or [])
            write_kept(folder, kept)
            constrain(env, folder)
            try:
                step.run(["/bin/sh", "-ec", entry.setup], self._code(entry))
            finally:  # also after a failure: its files are there
                self.code.prepared(entry.code)
            check_kept(str(folder / "bin" / "python"), kept)
            return ""
        except SetupFailed as error:
            return redacted(f"{error}{kept_hint(log, kept)} (log: data/sweep/setup/{log.name})", hidden)
        except OSError as error:
            return f"its environment can't be made: {error}"
        finally:
            with contextlib.suppress(OSError):
                redact_file(log, hidden)


def make_environment(folder: Path, python: str, step: Steps) -> None:
    """Makes a virtual environment that sees all packages of `python`, with a pip that installs into it. Uses no
    network.

    `python` may itself be in a virtual environment, whose packages a new one would not see: so their folders are added
    explicitly. Programs beside `python` (torchrun, pip) are copied to run with the new interpreter: else they would not
    see what the setup installs. Raises SetupFailed, OSError.
    """
    if folder.exists():  # an earlier attempt may have left it incomplete
        shutil.rmtree(folder)
    folder.parent.mkdir(exist_ok=True)
    if step.run([python, "-m", "venv", "--without-pip", str(folder)], folder.parent, check=False):
        uv = shutil.which("uv", path=step.env["PATH"])
        if not uv:
            raise SetupFailed(f"{python} has no venv module, and uv is not on PATH: install one of them on this box")
        step.run([uv, "venv", "--offline", "--allow-existing", "--python", python, str(folder)], folder.parent)
    inside = str(folder / "bin" / "python")
    libraries = Path(asked([inside, "-c", LIBRARIES]))
    sites = json.loads(asked([python, "-c", SITES]))
    # addsitedir instead of the bare path: it reads the .pth files there, which name packages installed in place.
    lines = [f"import site; site.addsitedir({site!r})\n" for site in sites if site != str(libraries)]
    (libraries / "_sweepstack_box.pth").write_text("".join(lines))
    _adopt_programs(Path(python).parent, folder / "bin", inside)
    pip = folder / "bin" / "pip"
    if step.run([inside, "-m", "pip", "--version"], folder, check=False) == 0:
        _write_program(pip, f'#!/bin/sh\nexec "{inside}" -m pip "$@"\n')
    elif step.run([inside, "-m", "ensurepip", "--default-pip"], folder, check=False):
        uv = shutil.which("uv", path=step.env["PATH"])
        if uv:
            _write_program(pip, f'#!/bin/sh\nexec "{uv}" pip "$@"\n')


def _adopt_programs(source: Path, target: Path, python: str) -> None:
    """Copies the Python programs beside an interpreter, to run with another one. Never overwrites one."""
    for path in source.iterdir():
        with contextlib.suppress(OSError):
            if not path.is_file() or path.stat().st_size > 1 << 16 or (target / path.name).exists():
                continue
            first, newline, rest = path.read_bytes().partition(b"\n")
            words = first[2:].strip().decode("utf-8", "replace")
            if newline and first.startswith(b"#!") and words.startswith(f"{source}/python") and " " not in words:
                _write_program(target / path.name, f"#!{python}\n{rest.decode('utf-8')}")


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


TAIL = 8192
CONFLICT = ("conflict", "constraint", "no solution found")
"""What pip or uv says of it."""
WAY_OUT = "take its pin out of what is installed, or write overrides: {<platform>: {keep: []}}"
_VERSIONS = """
import importlib.metadata as metadata, json, sys
found = {}
for name in json.loads(sys.argv[1]):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def kept_versions(python: str, names: Collection[str]) -> dict[str, str]:
    """Those of the named packages that `python` has, with their versions. Raises SetupFailed."""
    if not names:
        return {}
    return dict(json.loads(asked([python, "-c", _VERSIONS, json.dumps(sorted(names))])))


def write_kept(folder: Path, kept: Mapping[str, str]) -> None:
    """Writes the constraint file of an environment, and what lets uv see the packages; nothing where none is kept."""
    if kept:
        (folder / KEEP).write_text("".join(f"{name}=={version}\n" for name, version in sorted(kept.items())))
    for libraries in folder.glob("lib/python*/site-packages"):
        for name, version in kept.items():
            _show_as(libraries / f"{name}-{version}.dist-info", name, version)


def _show_as(info: Path, name: str, version: str) -> None:
    """Writes the metadata of a package of the image into the environment, without what it needs, which the image has.

    uv looks at the environment's own folder alone. With the constraint and without this it would look for the image's
    build in an index, where there is none, for each package that needs any torch.
    """
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("sweepstack\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")))


def check_kept(python: str, kept: Mapping[str, str]) -> None:
    """Raises SetupFailed if `python` would import other versions: some tools know no constraint file."""
    now = kept_versions(python, kept)
    for name, version in kept.items():
        if now.get(name) != version:
            raise SetupFailed(f"it put {name} {now.get(name, '(none)')} before the image's {version}: {WAY_OUT}")


def kept_hint(log: Path, kept: Mapping[str, str]) -> str:
    """What to do, where the end of a failed set-up's log tells of a conflict about a kept package; else ""."""
    with open(log, "rb") as handle:
        handle.seek(max(0, handle.seek(0, 2) - TAIL))
        tail = handle.read().decode("utf-8", "replace").lower()
    if not any(word in tail for word in CONFLICT):
        return ""
    named = [f"{name} {version}" for name, version in kept.items() if re.search(rf"\b{re.escape(name)}\b", tail, re.I)]
    return f"; {', '.join(named)} of the image stays as it is: {WAY_OUT}" if named else ""


def smoke_of(spec: Mapping[str, Any], entry: Entry) -> dict[str, Any] | None:
    """The smoke run in spec.json (`run`, `seconds`, `code`); None without one, and for a cell that is pinned to another
    code: the command was written for the job's code."""
    smoke = spec.get("smoke")
    return dict(smoke) if smoke and smoke["code"] == entry.code else None


def key_of(smoke: Mapping[str, Any], entry: Entry) -> str:
    """The key under which this box remembers a pass: a digest of the command and of what the version's cells use."""
    return digest_of([smoke["run"], entry.work])


def run_smoke(
    home: Path,
    spec: Mapping[str, Any],
    smoke: Mapping[str, Any],
    entry: Entry,
    running: set[int],
    stopping: threading.Event,
) -> str:
    """Runs it in a temporary folder, like a cell. Returns why it failed; "" on success.

    Blocks for `smoke["seconds"]` at most. Its log names missing artifacts; they are no failure. Raises CellFailure,
    SecretsRefused, NetworkRefused before anything has run.
    """
    name = hex_of(key_of(smoke, entry))[:16]
    log = home / "setup" / f"{name}.log"
    place = home.parent.parent / "scratch" / "sweep" / f"smoke-{name}"
    out = place / "out"
    values = values_of(entry, str(out), str(place / "checkpoint"))
    env = variables(home, spec, entry, values)
    hidden = [env[one] for one in spec.get("secrets") or []]
    command = fill(smoke["run"], values, shlex.quote)
    env.update(
        SWEEPSTACK_SETUP=name,
        SWEEPSTACK_CELL=entry.cell,
        SWEEPSTACK_OUT=str(out),
        SWEEPSTACK_ATTEMPT="1",
        SWEEPSTACK_CHECKPOINT_DIR=str(place / "checkpoint"),
        SWEEPSTACK_SCRATCH=str(place / "scratch"),
        **mount_variables(home.parent.parent, spec),
    )
    try:
        shutil.rmtree(place, ignore_errors=True)  # files of an earlier runner that was killed
        for folder in (out, place / "checkpoint", place / "scratch", log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        _say_in_log(log, f"{now()} smoke run {name} begins, as {entry.cell}")
        step = Steps(log, env, hidden, time.monotonic() + float(smoke["seconds"]), running, stopping)
        step.run(["/bin/sh", "-c", command], home / "code" / hex_of(entry.code))
        named = [own_file(one["path"], entry.cell, entry.params) for one in spec.get("artifacts") or []]
        lacking = [path for path in named if not is_there(out, path)]
        _say_in_log(log, "the smoke run passed" + (f"; it left no {', '.join(lacking)}" if lacking else ""))
        return ""
    except SetupFailed as error:
        return redacted(
            f"the smoke run (job.smoke) as {entry.cell}: {error} (log: data/sweep/setup/{log.name})", hidden
        )
    except OSError as error:
        return f"the smoke run can't be made: {error}"
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            redact_file(log, hidden)


def _say_in_log(log: Path, words: str) -> None:
    with open(log, "a") as handle:
        handle.write(f"[sweepstack] {words}\n")
