"""Guesses the line of `metrics` from the files that a trial left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sweepstack.core.curve_files import VERSION, Kind, X, kind_of, missing_reader, rows_of
from sweepstack.core.metrics import Row, number
from sweepstack.extensions.importers.found import Found
from sweepstack.onbox.common.errors import SweepstackError

STEPS = ("step", "global_step", "iteration", "iter", "_step", "epoch", "it")
ORDER: tuple[Kind, ...] = ("lines", "table", "trainer", "tensorboard", "trackio", "wandb")
"""Which is taken where a run left several."""
_BESIDE = re.compile(
    r"^_|^epoch$|^hp_metric$|^lr(-.*)?$|learning_rate|grad_norm|total_flos|runtime|_per_second$|^train/epoch$"
)
"""What tools log by themselves, and no person compares cells by."""
MOST_BYTES = 16 << 20
MOST = 6


def curve(found: Found, out: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """The keys of `metrics`, by the first file with steps and numbers; None where there is none. Notes what can't be
    read here. `names`: the files below `out`."""
    patterns: dict[str, list[str]] = {}
    for name in sorted(names):
        if kind_of(name) != "lines" or name.endswith(".jsonl"):
            patterns.setdefault(_pattern(name), []).append(name)
    for pattern in sorted(patterns, key=lambda pattern: (ORDER.index(kind_of(pattern)), pattern)):
        if sum((out / name).stat().st_size for name in patterns[pattern]) > MOST_BYTES:
            continue
        if problem := missing_reader(pattern):
            found.note(problem)
            continue
        try:
            rows = rows_of(pattern, [(name, (out / name).read_bytes()) for name in patterns[pattern]])
        except (SweepstackError, OSError) as error:
            found.note(f"metrics: {error}")
            continue
        made = _columns(pattern, rows)
        if made is not None:
            return made
    return None


def _columns(pattern: str, rows: Sequence[Row]) -> dict[str, Any] | None:
    kind = kind_of(pattern)
    looked = rows[:1] if kind == "lines" else rows[:1000]
    keys = list(dict.fromkeys(key for row in looked for key, value in row.items() if _is_number(value, kind)))
    x = X.get(kind) or next((key for key in STEPS if key in keys), None)
    y = [key for key in keys if key != x and (kind == "lines" or not _BESIDE.search(key))]
    return {"file": pattern, "x": x, "y": y[:MOST]} if x in keys and y else None


def _is_number(value: Any, kind: Kind) -> bool:
    return type(value) in (int, float) or (kind == "table" and number(value) is not None)


def _pattern(name: str) -> str:
    """What the file is called in each cell: with `*` for the time, the machine, and the last step."""
    folder, _, file = VERSION.sub("version_*", name).rpartition("/")
    kind = kind_of(name)
    if kind == "trainer":
        folder = re.sub(r"(^|/)checkpoint-\d+$", r"\1checkpoint-*", folder)
    elif kind == "tensorboard":
        file = f"{file.partition('.tfevents.')[0]}.tfevents.*"
        if folder.rpartition("/")[0] in ("runs", "logs") or re.search(r"\d{4}|\d-\d", folder.rpartition("/")[2]):
            folder = f"{folder.rpartition('/')[0]}/*".lstrip("/")
    elif kind == "wandb":
        folder, file = re.sub(r"offline-run-[^/]+|run-\d[^/]+", lambda one: _starred(one[0]), folder), "run-*.wandb"
    return f"{folder}/{file}" if folder else file


def _starred(run: str) -> str:
    return "offline-run-*" if run.startswith("offline-") else "run-*"
