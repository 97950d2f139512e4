"""VersityGW, a real S3 server for the tests: built from Go modules that scripts/s3_server pins.

A server that only looks like S3 would let wrong checksums and wrong keys pass; this one refuses them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.engine import pins_digest
from scripts.lib.engine_build import compile_package, fetch_modules, go_tools, oldest_go
from scripts.lib.errors import SetupError
from scripts.lib.places import Places
from scripts.lib.processes import run
from scripts.lib.wheels import put_in_place, scratch_folder

PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
NAME = "versitygw"


def binary(places: Places) -> Path:
    """Where the server is, once it has been built: a change of its pins makes another."""
    return places.cache / NAME / pins_digest(_pins(places).glob("go.*")) / NAME


def install(
    places: Places, env: Mapping[str, str], console: Console, cancel: threading.Event, uv: Callable[[], Path]
) -> None:
    """Builds the server into the cache, proved to run. Nothing to do when it is there. Minutes, on all cores.

    Call it with the builds locked: it shares Go and Go's own cache with the build of the engine, and removes both.

    Raises:
        SetupError: no Go, or the build failed. The cache holds nothing of it then.
    """
    final = binary(places)
    if final.is_file():
        return
    pins = _pins(places)
    go, go_env = go_tools(oldest_go(pins), places.engine_sources, places.cache, env, console, cancel, uv)
    made = scratch_folder(final.parent.parent)
    try:
        with console.step(
            "VersityGW", "a real S3 server for the tests, from Go modules; 1 to 2 min on 2 cores"
        ) as step:
            total = fetch_modules(go, go_env, pins, PACKAGE, step, cancel)
            compile_package(go, go_env, pins, PACKAGE, made / NAME, "-s -w", total, step, cancel)
            run([made / NAME, "--version"], what="the new VersityGW", deadline=60, cancel=cancel, env=env)
        put_in_place(made, final.parent)
    except OSError as error:
        raise SetupError(f"building VersityGW: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(places.cache / "go", ignore_errors=True)  # not needed before the next version


def _pins(places: Places) -> Path:
    return places.root / "scripts" / "s3_server"
