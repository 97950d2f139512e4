"""Programs that are built from Go modules where they are wanted, each by pins below scripts/.

For the tests a real S3 server, since one that only looks like S3 would let wrong checksums and wrong keys pass, and
actionlint, whose package on PyPI has no program in it, and a Kubernetes, since only a real one refuses, schedules and
ends pods as clusters do. For programs in YAML their language host, where the official
download, which has it, is out of reach.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.engine import pins_digest
from scripts.lib.engine_build import compile_package, fetch_modules, go_tools, oldest_go
from scripts.lib.errors import SetupError
from scripts.lib.places import Places
from scripts.lib.processes import run
from scripts.lib.wheels import put_in_place, scratch_folder


@dataclass(frozen=True)
class GoTool:
    """One program. `pins`: the folder below scripts/ with its go.mod and go.sum, and its main.go where the program is
    ours (`package` is `.` then); `note`: what it is, for people; `proof`: the option that it answers at once."""

    name: str
    package: str
    pins: str
    title: str
    note: str
    proof: str = "--version"
    flags: str = ""
    """More flags for the linker."""

    def binary(self, places: Places) -> Path:
        """Where it is, once it has been built: a change of its pins or its source makes another."""
        pins = self._pins(places)
        return places.cache / self.name / pins_digest([*pins.glob("go.*"), *pins.glob("main.go")]) / self.name

    def install(
        self, places: Places, env: Mapping[str, str], console: Console, cancel: threading.Event, uv: Callable[[], Path]
    ) -> None:
        """Builds it into the cache, proved to run. Nothing to do when it is there. Minutes at most, on all cores.

        Call it with the builds locked: it shares Go and Go's own cache with the build of the engine, and removes both.

        Raises:
            SetupError: no Go, or the build failed. The cache holds nothing of it then.
        """
        final = self.binary(places)
        if final.is_file():
            return
        pins = self._pins(places)
        go, go_env = go_tools(oldest_go(pins), places.engine_sources, places.cache, env, console, cancel, uv)
        made = scratch_folder(final.parent.parent)
        try:
            with console.step(self.title, self.note) as step:
                total = fetch_modules(go, go_env, pins, self.package, step, cancel)
                flags = f"-s -w {self.flags}".rstrip()
                compile_package(go, go_env, pins, self.package, made / self.name, flags, total, step, cancel)
                run([made / self.name, self.proof], what=f"the new {self.title}", deadline=60, cancel=cancel, env=env)
            put_in_place(made, final.parent)
        except OSError as error:
            raise SetupError(f"building {self.title}: {error}") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(places.cache / "go", ignore_errors=True)  # not needed before the next version

    def put(self, folder: Path, places: Places) -> None:
        """Puts what was built into a folder, in one step. Idempotent."""
        own, target = self.binary(places), folder / self.name
        if not (target.is_file() and filecmp.cmp(own, target, shallow=False)):
            scratch = folder / f".{self.name}-{os.getpid()}"
            shutil.copy(own, scratch)
            os.replace(scratch, target)

    def _pins(self, places: Places) -> Path:
        return places.root / "scripts" / self.pins


S3_SERVER = GoTool(
    name="versitygw",
    package="github.com/versity/versitygw/cmd/versitygw",
    pins="s3_server",
    title="VersityGW",
    note="a real S3 server for the tests, from Go modules; 1 to 2 min on 2 cores",
)
ACTIONLINT = GoTool(
    name="actionlint",
    package="github.com/rhysd/actionlint/cmd/actionlint",
    pins="actionlint",
    title="actionlint",
    note="reads GitHub's workflows, for `make check`, from Go modules; half a minute on 2 cores",
)
YAML_HOST = GoTool(
    name="pulumi-language-yaml",
    package=".",
    pins="language_yaml",
    title="language host for YAML",
    note="for a Pulumi.yaml with `runtime: yaml`, from Go modules; 1 min on 2 cores",
    proof="--help",
)
_VERSION = "k8s.io/component-base/version"
KUBERNETES = GoTool(
    name="kubernetes",
    package=".",
    pins="kubernetes",
    title="Kubernetes 1.34.4",
    note="API server, controllers, scheduler and kubelet for the tests, from Go modules; 4 to 6 min on 2 idle cores",
    flags=f"-X {_VERSION}.gitVersion=v1.34.4 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=34",
)
OF_GROUP = {"s3": S3_SERVER, "dev": ACTIONLINT, "kubernetes": KUBERNETES}
"""Which part of a set-up needs it."""
