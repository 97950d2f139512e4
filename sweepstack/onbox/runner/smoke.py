"""The smoke run on a box: a batch or two of the job, with the first cell's values.

It is `job.smoke` with `on: box`. It runs after the set-up and before the first cell of its version, once on a box, and
leaves only its log.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import digest_of, hex_of
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.runner.environment import fill, redact_file, redacted, values_of, variables
from sweepstack.onbox.runner.mounts import mount_variables
from sweepstack.onbox.runner.records import Entry, now
from sweepstack.onbox.runner.steps import SetupFailed, Steps


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
        _say(log, f"{now()} smoke run {name} begins, as {entry.cell}")
        step = Steps(log, env, hidden, time.monotonic() + float(smoke["seconds"]), running, stopping)
        step.run(["/bin/sh", "-c", command], home / "code" / hex_of(entry.code))
        named = [own_file(one["path"], entry.cell, entry.params) for one in spec.get("artifacts") or []]
        lacking = [path for path in named if not (out / path).is_file()]
        _say(log, "the smoke run passed" + (f"; it left no {', '.join(lacking)}" if lacking else ""))
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


def _say(log: Path, words: str) -> None:
    with open(log, "a") as handle:
        handle.write(f"[sweepstack] {words}\n")
