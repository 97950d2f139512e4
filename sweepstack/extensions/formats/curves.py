"""Reads curves that TensorBoard, Hugging Face's Trainer, Trackio and Weights & Biases log.

`rows(kind, parts)` gives the rows of one try. A last record that is not whole yet is left out: a run may be writing it.
What is damaged is refused with its file. Nothing of a file is run.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

from sweepstack.core.curve_files import VERSION, Kind
from sweepstack.core.metrics import Row, number
from sweepstack.extensions.formats import events
from sweepstack.loaders.base import Unreadable
from sweepstack.onbox.common.errors import No

Part = tuple[str, bytes]


def rows(kind: Kind, parts: Sequence[Part]) -> list[Row]:
    """The rows, by their steps. `parts`: (path below {out}, content), in their order. Raises No with the file that is
    damaged, and for event files that are no one run; ImportError where its library is not installed."""
    return _READERS[kind](parts)


def _damaged(path: str, why: object) -> No:
    return No(f"{path} is damaged: {why}")


# TensorBoard


def _of_events(parts: Sequence[Part]) -> list[Row]:
    """Tags are columns; where files lie in several folders, `folder/tag`, as TensorBoard names runs. Where the steps of
    a tag go back, as after a restart, what was written last counts."""
    folders = sorted({_run(path) for path, _ in parts})
    common = os.path.commonpath(folders) if len(folders) > 1 and all(folders) else ""
    curves: dict[str, list[tuple[int, float]]] = {}
    ends: dict[str, tuple[str, float]] = {}
    for path, data in parts:
        folder = _run(path)
        before = f"{os.path.relpath(folder or '.', common or '.')}/" if len(folders) > 1 and folder != common else ""
        times: dict[str, float] = {}
        try:
            for time, step, tag, value in _scalars(data):
                name = before + tag
                if name in ends and name not in times and time < ends[name][1]:
                    raise No(f"{ends[name][0]} and {path} have {tag} of the same time: metrics.file has to mean one")
                times[name] = max(time, times.get(name, time))
                points = curves.setdefault(name, [])
                while points and points[-1][0] >= step:
                    points.pop()
                points.append((step, value))
        except Unreadable as error:
            raise _damaged(path, error) from None
        ends |= {name: (path, time) for name, time in times.items()}
    found: dict[int, dict[str, Any]] = {}
    for name, points in curves.items():
        for step, value in points:
            found.setdefault(step, {"step": step})[name] = value
    return [found[step] for step in sorted(found)]


def _run(path: str) -> str:
    """The folder of an event file; of the versions of one run the same."""
    return VERSION.sub("version_*", path).rpartition("/")[0]


def _scalars(data: bytes) -> Iterator[tuple[float, int, str, float]]:
    """(time, step, tag, value) of each. Raises Unreadable."""
    import numpy as np

    kinds: dict[str, str] = {}
    with tempfile.NamedTemporaryFile(prefix="sweepstack-events-") as file:
        file.write(data)
        file.flush()
        for event in events.read(file.name, len(data), cut=True):
            for value in event.summary.value:
                kinds.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
                if value.HasField("simple_value"):  # four bytes: 0.1 is to be 0.1, and not 0.10000000149
                    yield event.wall_time, event.step, value.tag, float(str(np.float32(value.simple_value)))
                elif value.HasField("tensor") and kinds[value.tag] == "scalars":
                    one = _number_in(value.tensor)
                    if one is not None:
                        yield event.wall_time, event.step, value.tag, one


def _number_in(tensor: Any) -> float | None:
    """The one number of a tensor; None of others."""
    from tensorboard.util.tensor_util import make_ndarray

    try:
        found = make_ndarray(tensor)
        return float(str(found.item())) if found.size == 1 and found.dtype.kind in "fiu" else None
    except (TypeError, ValueError):
        return None


# Hugging Face's Trainer


def _of_trainer(parts: Sequence[Part]) -> list[Row]:
    """The history of the state that is furthest: each has all of those before it. One that is being written is passed
    over."""
    best: tuple[int, list[Any]] | None = None
    for path, data in parts:
        try:
            state = json.loads(data)
            step, history = int(state["global_step"]), list(state["log_history"])
            if not all(isinstance(row, dict) for row in history):
                raise TypeError
        except (ValueError, RecursionError) as error:
            if _is_cut(data):
                continue
            raise _damaged(path, error) from None
        except (KeyError, TypeError):
            raise _damaged(path, "no global_step or log_history of a Trainer in it") from None
        if best is None or step >= best[0]:
            best = step, history
    return _by_step(best[1] if best is not None else (), "step")


def _is_cut(data: bytes) -> bool:
    """Whether it is the beginning of some JSON: it may be written just now."""
    from pydantic_core import from_json

    try:
        from_json(data, allow_partial=True)
    except ValueError:
        return not data.strip()
    return True


def _by_step(logged: Iterable[Row], x: str) -> list[Row]:
    """One row of what was logged one after the other for the same step."""
    found: list[dict[str, Any]] = []
    for row in logged:
        if found and row.get(x) is not None and row.get(x) == found[-1].get(x):
            found[-1].update(row)
        else:
            found.append(dict(row))
    return list(found)


# Trackio


def _of_trackio(parts: Sequence[Part]) -> list[Row]:
    """The numbers of the one run that a project's database has, by their steps."""
    found: list[dict[str, Any]] = []
    for path, data in parts:
        with tempfile.NamedTemporaryFile(prefix="sweepstack-trackio-") as file:
            file.write(data)
            file.flush()
            try:
                found += _logged_by_trackio(file.name, path)
            except (sqlite3.Error, ValueError, TypeError) as error:
                raise _damaged(path, error) from None
    return _by_step(found, "step")


def _logged_by_trackio(file: str, path: str) -> list[dict[str, Any]]:
    """Raises No, sqlite3.Error, ValueError, TypeError."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as base:
        [[state]] = base.execute("PRAGMA quick_check(1)")
        if state != "ok":
            raise ValueError(" ".join(str(state).split()))
        runs = [run for [run] in base.execute("SELECT DISTINCT run_id FROM metrics")]
        if len(runs) > 1:
            raise No(f"{path} has {len(runs)} runs: a cell's curve is one")
        rows = base.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    found = []
    for step, text in rows:
        row = {"step": step}
        for key, value in json.loads(text).items():
            _put(row, key, value)
        found.append(row)
    return found


# Weights & Biases

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
BLOCK = 32768
HEADER = b":W&B\xe1\xbe\x00"
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def _of_wandb(parts: Sequence[Part]) -> list[Row]:
    """Keys as they were logged, with dots where they are nested; `_step`, `_runtime` and `_timestamp` are the
    client's."""
    found: list[Row] = []
    for path, data in parts:
        try:
            for record in _records(data):
                if record.HasField("history"):
                    found.append(_logged(record.history))
        except Unreadable as error:
            raise _damaged(path, error) from None
    return found


def _logged(history: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"_step": history.step.num}
    for item in history.item:
        name = ".".join(item.nested_key) or item.key
        try:
            value = json.loads(item.value_json)
        except (ValueError, RecursionError):
            continue
        _put(row, name, value)
    return row


def _put(row: dict[str, Any], name: str, value: Any) -> None:
    """Adds what is a number, or stands for one that JSON has none for."""
    if number(value) is not None and not isinstance(value, str):
        row[name] = value
    elif value in NOT_FINITE:
        row[name] = float(value)


def _records(data: bytes) -> Iterator[Any]:
    """The records of a client's log, which is LevelDB's: blocks, and in them parts of records, each with its checksum,
    length and kind. wandb itself reads them in Go alone. Raises Unreadable."""
    from google.protobuf.message import DecodeError

    if not data.startswith(HEADER):
        if HEADER.startswith(data):
            return
        raise Unreadable("does not begin as a run of wandb does")
    at, whole, open_ = len(HEADER), b"", False
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        crc, length, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + 7 : at + 7 + length]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or at % BLOCK + 7 + length > BLOCK:
            if not any(data[at:]):  # room that was set aside, and not written yet
                return
            raise Unreadable(f"no record at byte {at:,}")
        if len(piece) < length:
            return
        if zlib.crc32(piece, zlib.crc32(bytes([kind]))) != crc:
            raise Unreadable(f"a record at byte {at:,} has another checksum")
        if open_ is (kind in (_FULL, _FIRST)):
            raise Unreadable(f"a part of a record is missing at byte {at:,}")
        whole, at, open_ = (whole if open_ else b"") + piece, at + 7 + length, kind in (_FIRST, _MIDDLE)
        if not open_:
            try:
                yield _record().FromString(whole)
            except DecodeError:
                raise Unreadable(f"no record of wandb before byte {at:,}") from None


@lru_cache(maxsize=1)
def _record() -> Any:
    """The message of a record, with what is read of it (wandb/proto/wandb_internal.proto, wandb 0.31)."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    fields = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="sweepstack/wandb.proto", package="sweepstack.wandb", syntax="proto3"
    )
    for message, known in {
        "Step": [("num", 1, fields.TYPE_INT64, "")],
        "Item": [("key", 1, fields.TYPE_STRING, ""), ("nested_key", 2, fields.TYPE_STRING, "*"),
                 ("value_json", 16, fields.TYPE_STRING, "")],
        "History": [("item", 1, fields.TYPE_MESSAGE, "*Item"), ("step", 2, fields.TYPE_MESSAGE, "Step")],
        "Record": [("history", 2, fields.TYPE_MESSAGE, "History")],
    }.items():  # fmt: skip
        made = file.message_type.add(name=message)
        for name, at, kind, of in known:
            label = fields.LABEL_REPEATED if of.startswith("*") else fields.LABEL_OPTIONAL
            type_name = f".sweepstack.wandb.{of.lstrip('*')}" if of.lstrip("*") else None
            made.field.add(name=name, number=at, type=kind, label=label, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sweepstack.wandb.Record"))


_READERS: dict[Kind, Callable[[Sequence[Part]], list[Row]]] = {
    "tensorboard": _of_events,
    "trainer": _of_trainer,
    "trackio": _of_trackio,
    "wandb": _of_wandb,
}
