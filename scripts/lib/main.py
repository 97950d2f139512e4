"""Sets a checkout up: venv, engine, launcher. Says what it does; a second run does nothing."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.lib import (
    command_plugin,
    engine_build,
    engine_download,
    extras,
    kernel,
    launchers,
    pod_image,
    python_env,
    stamp,
    wheels,
)
from scripts.lib.apt import OF_OPTION
from scripts.lib.console import Console
from scripts.lib.engine import Engine, Recipe, cached, on_path, sweep_leftovers, wants_yaml, yaml_host
from scripts.lib.errors import Cancelled, SetupError
from scripts.lib.go_tool import KUBERNETES, OF_GROUP, S3_SERVER, YAML_HOST
from scripts.lib.places import Places
from scripts.lib.processes import Together

LOCK_DEADLINE = 2400.0
UV_DEADLINE = 600.0
ENGINE_DISK_GB = 5
OPTIONAL = ("torch", "trainer", "s3", "ssh", "slurm", "nfs", "kubernetes", "yaml")
"""Options that add something beside the Python packages."""


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/setup", description=__doc__)
    parser.add_argument("--dev", action="store_true", help="also what the tests and the checks need")
    stack = "also what these stack files need; by default all of stacks/"
    parser.add_argument("--stack", nargs="+", type=Path, metavar="FILE", help=stack)
    parser.add_argument("--extra", action="append", default=[], metavar="NAME", help="also this extra of the package")
    parser.add_argument("--torch", action="store_true", help="also torch, for the tests and the torch example")
    parser.add_argument("--trainer", action="store_true", help="also Hugging Face's Trainer, for make proof")
    parser.add_argument("--s3", action="store_true", help="also VersityGW, a real S3 server for the tests")
    parser.add_argument("--ssh", action="store_true", help="also an SSH server and rsync, for the tests (apt, as root)")
    parser.add_argument("--slurm", action="store_true", help="also Slurm and munge, for the tests (apt, as root)")
    parser.add_argument("--nfs", action="store_true", help="also QEMU and a kernel, for tests over NFS (apt, as root)")
    parser.add_argument(
        "--kubernetes", action="store_true", help="also a Kubernetes, for the tests (Go and apt, as root)"
    )
    parser.add_argument("--browser", action="store_true", help="also Chromium, for tests of pages (apt, as root)")
    parser.add_argument("--yaml", action="store_true", help="also Pulumi's host for YAML, which a project in YAML gets")
    parser.add_argument("--force", action="store_true", help="run every step, whatever the last run left")
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    parser.add_argument(
        "--engine",
        choices=["auto", "path", "download", "modules"],
        default="auto",
        help="where the Pulumi engine comes from (default: the first of these that works)",
    )
    return parser.parse_args(argv)


class Setup:
    """One run of set-up. Several may run at once on one machine: they share a cache under a lock."""

    def __init__(self, places: Places, options: argparse.Namespace, console: Console, env: dict[str, str]) -> None:
        self.places = places
        self.options = options
        self.console = console
        self.env = env
        options.yaml = options.yaml or wants_yaml(places.root)
        self.groups = ["examples", *(["dev"] if options.dev else []), *(["browser"] if options.browser else [])]
        self.engine: Engine | None = None
        self.offline = False
        self._uv: Path | None = None
        self._uv_ready = threading.Event()

    def run(self) -> None:
        """Raises SetupError with the first cause when a step fails."""
        began, options = time.monotonic(), self.options
        self.groups += extras.wanted(self.places.root, options.stack, options.extra, every=options.dev)
        wanted = [*self.groups, *(name for name in OPTIONAL if getattr(self.options, name))]
        last = stamp.Stamp.read(self.places.record)
        reason = "--force" if self.options.force else stamp.why_stale(last, self.places, wanted)
        if last is not None and self.options.engine not in ("auto", last.engine_source):
            reason = reason or f"--engine {self.options.engine}"
        if reason is None:
            python_env.compile_own(self.places)
            if not self.options.quiet:
                self.console.say(f"set-up is current ({time.monotonic() - began:.1f} s)")
                self._notes()
            return
        self.console.say(f"setting up {self.places.root} ({reason})")
        # What the user has stays when the next run wants less: torch is not taken away by `make up`.
        if last is not None:
            self.groups = sorted({*self.groups, *last.groups} - {*OPTIONAL})
        apt = [self._apt_side] if any(getattr(self.options, option) for option in OF_OPTION) else []
        Together()([self._python_side, self._built_side, *apt])
        assert self.engine is not None
        launchers.install_launcher(self.places, str(self.engine.cli), offline=self.offline)
        installed = {
            "torch": python_env.installed_version(self.places, "torch") is not None,
            "trainer": python_env.has_trainer(self.places),
            "s3": S3_SERVER.binary(self.places).is_file(),
            "ssh": not OF_OPTION["ssh"].missing(),
            "slurm": not OF_OPTION["slurm"].missing(),
            "nfs": not OF_OPTION["nfs"].missing() and kernel.is_there(self.places),
            "kubernetes": not OF_OPTION["kubernetes"].missing()
            and pod_image.is_there(self.places)
            and KUBERNETES.binary(self.places).is_file(),
            "yaml": yaml_host(self.engine.cli, self.places.bin, self.env) is not None,
            "browser": not OF_OPTION["browser"].missing()
            and python_env.installed_version(self.places, stamp.PROOF["browser"]) is not None,
        }
        stamp.Stamp(
            key=stamp.key_of(self.places.root),
            groups=tuple(sorted(name for name in {*self.groups, *installed} if installed.get(name, True))),
            engine=str(self.engine.cli),
            engine_version=self.engine.version,
            engine_source=self.engine.source,
            offline=self.offline,
            root=str(self.places.root),
        ).write(self.places.record)
        self._notes()
        longest = sorted(self.console.took, key=lambda item: -item[1])[:4]
        self.console.say(
            f"set up in {time.monotonic() - began:.0f} s"
            + (
                ", side by side: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in longest)
                if longest
                else ""
            )
        )

    def _notes(self) -> None:
        for note in launchers.install_shims(self.places, self.env):
            self.console.say(f"  note: {note}")

    def _python_side(self, cancel: threading.Event) -> None:
        try:
            self._uv = wheels.find_uv(self.env) or wheels.install_uv(
                self.places.cache, self.places.root / "scripts" / "requirements-uv.txt", self.env, self.console, cancel
            )
        finally:
            self._uv_ready.set()
        with self.console.step("Python packages", f"into .venv, from uv.lock: {', '.join(self.groups)}") as step:
            python_env.sync(self.places, self._uv, self.groups, self.env, cancel, step)
            python_env.compile_own(self.places, cancel)
        if self.options.torch:
            python_env.install_torch(self.places, self._uv, self.env, self.console, cancel, self.groups)
        if self.options.trainer:
            python_env.install_trainer(self.places, self._uv, self.env, self.console, cancel)

    def _wait_for_uv(self) -> Path:
        if not self._uv_ready.wait(UV_DEADLINE) or self._uv is None:
            raise Cancelled("uv could not be had")
        return self._uv

    def _built_side(self, cancel: threading.Event) -> None:
        self._engine_side(cancel)
        if not self.offline:
            command_plugin.install(self.places.cache, self.console, cancel)
        for group, tool in OF_GROUP.items():
            if tool is KUBERNETES and self.options.kubernetes and (why := pod_image.unusable()):
                self.console.say(f"  note: tests on Kubernetes will fail: {why}; {tool.title} is not built")
            elif getattr(self.options, group) and not tool.binary(self.places).is_file():
                with cache_lock(self.places.builds_lock, self.console, cancel):
                    tool.install(self.places, self.env, self.console, cancel, self._wait_for_uv)
        if self.options.yaml:
            self._yaml_host(cancel)

    def _yaml_host(self, cancel: threading.Event) -> None:
        """Where the engine has one, that is taken; one that was built here lies beside the engine that was."""
        assert self.engine is not None
        if self.engine.source != "modules" and yaml_host(self.engine.cli, self.places.bin, self.env) is not None:
            return
        with cache_lock(self.places.builds_lock, self.console, cancel):
            YAML_HOST.install(self.places, self.env, self.console, cancel, self._wait_for_uv)
            YAML_HOST.put(self.places.bin if self.engine.source == "path" else self.engine.cli.parent, self.places)

    def _apt_side(self, cancel: threading.Event) -> None:
        with cache_lock(self.places.cache / "apt" / ".lock", self.console, cancel):
            for option, packages in OF_OPTION.items():
                if getattr(self.options, option):
                    packages.install(self.env, self.console, cancel)
            if self.options.nfs:
                kernel.unpack(self.places, self.env, self.console, cancel)
            if self.options.kubernetes:
                pod_image.make(self.places, self.env, self.console, cancel)

    def _engine_side(self, cancel: threading.Event) -> None:
        recipe = Recipe.read(self.places.root)
        source = self.options.engine
        base = engine_download.reachable(recipe.version)
        self.offline = base is None
        refused: list[str] = []
        if source in ("auto", "path"):
            self.engine, refused = on_path(recipe, self.env)
            for line in refused:
                self.console.say(f"  note: {line}")
            if self.engine is not None or source == "path":
                if self.engine is None:
                    raise SetupError(f"no fitting pulumi on PATH: {'; '.join(refused) or 'there is none'}")
                self.console.say(f"  engine: {self.engine.cli}, version {self.engine.version}, from PATH")
                return
        engines = self.places.engines
        with cache_lock(self.places.builds_lock, self.console, cancel):
            sweep_leftovers(engines)
            self.engine = self._cached(recipe, source)
            if self.engine is None:
                self._make_engine(recipe, source, base, cancel)
                self.engine = self._cached(recipe, source)
        if self.engine is None:
            raise SetupError(f"the engine was made and is not in {engines}")
        self.console.say(f"  engine: {self.engine.cli} ({self.engine.source})")

    def _cached(self, recipe: Recipe, source: str) -> Engine | None:
        return cached(recipe, self.places.engines, ("download", "modules") if source == "auto" else (source,))

    def _make_engine(self, recipe: Recipe, source: str, base: str | None, cancel: threading.Event) -> None:
        tried: list[str] = []
        if source in ("auto", "download"):
            if base is not None:
                try:
                    return engine_download.install(recipe, base, self.places.engines, self.env, self.console, cancel)
                except Cancelled:
                    raise
                except SetupError as error:
                    tried.append(f"official download: {error}")
                    self.console.say(f"  note: {tried[-1]}")
            else:
                tried.append("official download: its hosts do not answer from here")
        if source in ("auto", "modules"):
            free = shutil.disk_usage(self.places.engines).free >> 30
            if free < ENGINE_DISK_GB:
                tried.append(f"build: needs {ENGINE_DISK_GB} GB in {self.places.cache}, which has {free} GB left")
            else:
                try:
                    return engine_build.install(
                        recipe, self.places.cache, self.env, self.console, cancel, self._wait_for_uv
                    )
                except Cancelled:
                    raise
                except SetupError as error:
                    tried.append(f"build from Go modules: {error}")
        raise SetupError(
            f"no Pulumi engine {recipe.version} can be had:\n  - "
            + "\n  - ".join(tried)
            + "\n  Put a pulumi of that minor version or newer, with its Python language host, on PATH, and try again."
        )


@contextmanager
def cache_lock(path: Path, console: Console, cancel: threading.Event) -> Iterator[None]:
    """Holds the cache for one set-up. Waits for another with a deadline; a killed holder's lock ends with it.

    Raises:
        SetupError: the other one took longer than the deadline.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + LOCK_DEADLINE
    waiting = False
    with path.open("w", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    console.say(f"  note: another set-up is at work in {path.parent}; waiting for it")
                waiting = True
            if time.monotonic() > ends:
                raise SetupError(f"{path.parent}: another set-up has held this for {LOCK_DEADLINE:.0f} s")
            if cancel.wait(0.5):
                raise Cancelled("ended while waiting for another set-up")
        yield


def main(argv: Sequence[str], root: Path) -> int:
    """The exit code: 0, 1 with one message, or 130 after Ctrl-C."""
    options = parse_arguments(argv)
    env = dict(os.environ)
    try:
        Setup(Places.of(root, env), options, Console(), env).run()
    except (SetupError, OSError) as error:
        sys.stdout.flush()
        print(f"error: set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up interrupted: nothing half-made is used, the next run goes on", file=sys.stderr)
        return 130
    return 0
