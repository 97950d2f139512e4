"""Guesses the lines of `artifacts` from what a run left in its folder: `guess(paths)`. Reads no file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from sweepstack.core.loader_names import Loader
from sweepstack.extensions.formats.names import loader_of
from sweepstack.onbox.common.groups import unit_of

MOST = 8
"""Lines at most: what proves a run best comes first."""
_SKIPPED = re.compile(
    r"(^|/)(\.|__pycache__/|wandb/|mlruns/|log\.txt$|manifest\.json$|trainer_state\.json$"
    r"|((generation_|preprocessor_|tokenizer_)?config|tokenizer|special_tokens_map|added_tokens|vocab)\.json$)"
)
"""What proves nothing of a run by itself."""
_RANK: dict[str, int] = {
    **dict.fromkeys(("hf", "adapter", "trainer", "dcp", "orbax", "lightning", "torch", "safetensors", "keras"), 0),
    **dict.fromkeys(("gguf", "onnx", "flax", "skops", "joblib", "hdf5", "npz", "npy", "zarr"), 1),
    **dict.fromkeys(("json", "csv", "tsv", "jsonl", "parquet", "command"), 2),
    **dict.fromkeys(("tar", "webdataset", "zip", "yaml", "tensorboard"), 3),
}
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\.safetensors")
_CHANGING = re.compile(r"(?:epoch|step|iter|ckpt|checkpoint|events\.out)")
"""Names with one of these and a number are others in each run."""


class Line(NamedTuple):
    """A line of `artifacts`: its name, its keys as YAML takes them, and why it was guessed, in a few words."""

    path: str
    keys: dict[str, Any]
    why: str


class _Folder(NamedTuple):
    load: Loader
    why: str
    known: Callable[[frozenset[str]], bool]
    """Whether a folder that holds these names is one."""


_FOLDERS = (
    _Folder("trainer", "a checkpoint of Hugging Face's Trainer", lambda names: "trainer_state.json" in names),
    _Folder("adapter", "an adapter of PEFT", lambda names: "adapter_config.json" in names),
    _Folder("dcp", "a distributed checkpoint of PyTorch", lambda names: ".metadata" in names),
    _Folder("orbax", "a checkpoint of Orbax", lambda names: bool({"_METADATA", "_CHECKPOINT_METADATA"} & names)),
    _Folder("zarr", "a Zarr store", lambda names: bool({"zarr.json", ".zgroup", ".zarray"} & names)),
    _Folder("hf", "a model of Hugging Face", lambda names: "config.json" in names and any(map(_is_model, names))),
)


def guess(paths: Iterable[str]) -> list[Line]:
    """The lines for a run that left these files: paths below its `{out}`, with slashes. Numbers that look like those of
    a step, an epoch, a shard or a time become `*`. Pure; [] where no name tells anything."""
    found: dict[str, Line] = {}
    every = sorted(set(paths))
    for line in _folders(every):
        found.setdefault(line.path, line)
    kept = (path for path in every if not _SKIPPED.search(path))
    files = [path for path in kept if not any(unit_of(pattern, path) for pattern in found)]
    shapes: dict[str, list[str]] = {}
    for path in files:
        shapes.setdefault(re.sub(r"\d+", "0", path), []).append(path)
    for same in shapes.values():
        for line in _files(same):
            found.setdefault(line.path, line)
    lines = sorted(found.values(), key=lambda line: (_RANK.get(line.keys["load"], 4), line.path))
    return lines[:MOST]


def _is_model(name: str) -> bool:
    return name in ("model.safetensors", "pytorch_model.bin") or name.endswith(".index.json")


def _folders(paths: list[str]) -> Iterable[Line]:
    """One line for each folder that is known by what it holds; not for one inside another, nor for {out} itself."""
    held: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder:
            held.setdefault(folder, set()).add(name)
    done: list[str] = []
    for folder, names in sorted(held.items(), key=lambda item: (item[0].count("/"), item[0])):
        kind = next((one for one in _FOLDERS if one.known(frozenset(names))), None)
        if kind is not None and not any(folder.startswith(above) for above in done):
            done.append(f"{folder}/")
            above, slash, last = folder.rpartition("/")
            pattern = f"{above}{slash}{_starred(last)}/" if re.search(r"[-_=]\d+$|^\d+$", last) else f"{folder}/"
            yield Line(pattern, {"load": kind.load}, kind.why)


def _files(same: list[str]) -> Iterable[Line]:
    """The line for files whose names differ by numbers alone, or for one file."""
    loader = loader_of(same[0])
    if loader is None or (loader == "image" and len(same) > 1 and len({PurePosixPath(one).parent for one in same}) > 1):
        return
    folder, slash, name = same[0].rpartition("/")
    if name.endswith(".safetensors.index.json"):
        check = {"load": "command", "run": "sweepctl-check hf-shards {file}", "trust": True}
        yield Line(same[0], check, "the index of a model in shards")
        return
    changing = _CHANGING.search(name.lower()) and re.search(r"\d", name)
    if len(same) == 1 and not changing:
        yield Line(same[0], {"load": loader}, f"by its name, {loader}")
        return
    shard = _SHARD.fullmatch(name)
    pattern = f"{shard[1]}-*-of-*.safetensors" if shard else _starred(name)
    if ".tfevents." in name and folder.rpartition("/")[0] in ("runs", "logs"):
        folder = folder.rpartition("/")[0] + "/*"  # a date, a time and a machine
    folder = folder if len({one.rpartition("/")[0] for one in same}) == 1 else _starred(folder)
    why = f"{len(same)} files whose numbers differ" if len(same) > 1 else "its number is another one in each run"
    yield Line(f"{folder}{slash}{pattern}", {"load": loader}, why)


def _starred(name: str) -> str:
    """Runs of digits as `*`; behind the first word of an event file all is of the machine and the time."""
    if ".tfevents." in name:
        return name.partition(".tfevents.")[0] + ".tfevents.*"
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem or suffix.isdigit():
        return re.sub(r"\d+", "*", name)
    return f"{re.sub(r'[0-9]+([.][0-9]+)?', '*', stem)}.{suffix}"
