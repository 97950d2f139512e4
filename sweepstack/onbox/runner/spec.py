"""Reads spec.json, which says what the box has to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.runner.records import Entry, Fatal, say

REQUIRED = {"schema", "identity", "box", "native_id", "generation", "durable", "python", "artifacts"}
SECONDS = ("grace", "setup", "stall", "patrol", "off", "timeout")
GRACE_SECONDS = 20.0
"""Between SIGTERM and SIGKILL of a cell, unless spec.json has `grace_seconds`."""
NUMBERS = ("retries", *(f"{what}_seconds" for what in SECONDS))


def own_files(spec: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """`spec` for one cell: with the names that `artifacts` and `metrics.file` have in it."""

    def named(known: dict[str, Any], key: str) -> dict[str, Any]:
        return {**known, key: own_file(str(known[key]), entry.cell, entry.params)}

    metrics = spec.get("metrics")
    artifacts = [named(artifact, "path") for artifact in spec["artifacts"]]
    return {**spec, "artifacts": artifacts, "metrics": named(metrics, "file") if metrics else metrics}


class Spec:
    """spec.json, read again when it has changed; while it can't be read, its last good content. For one thread."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, (0, 0)
        self._current: dict[str, Any] = {}
        self._problem: tuple[tuple[int, int], str] | None = None

    def __call__(self) -> dict[str, Any]:
        """The content. Raises Fatal when spec.json was never readable."""
        seen = (0, 0)
        try:
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_ino
            if seen != self._seen:
                spec = json.loads(self._path.read_bytes())
                self._check(spec)
                self._seen, self._current = seen, spec
        except (OSError, ValueError, TypeError) as error:
            if not self._current:
                raise Fatal(2, f"{self._path} can't be used: {error}") from error
            problem = seen, str(error)
            if problem != self._problem:  # log it once: this is called every second
                say(f"{self._path} can't be used, going on with the one before: {error}")
            self._problem = problem
        else:
            self._problem = None
        return self._current

    @staticmethod
    def _check(spec: dict[str, Any]) -> None:
        missing = REQUIRED - set(spec)
        if missing or spec["schema"] != 1:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}" if missing else "its schema is not 1")
        for name in NUMBERS:
            if float(spec.get(name, 1)) < 0:
                raise ValueError(f"its {name} is negative")
