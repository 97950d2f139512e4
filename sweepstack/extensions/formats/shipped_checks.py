"""The checks of `sweepctl-check`: a model of Hugging Face in shards, by index and headers alone."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.loaders.base import NoAnswer, Unreadable, some, unique_keys

SUFFIX = ".safetensors.index.json"
MAX_HEADER = 100_000_000
"""Bytes; safetensors' own bound."""


def hf_shards(index: Path) -> str:
    """Checks a model of Hugging Face that was saved in shards, by its index (`model.safetensors.index.json`): the index
    and each shard name the same tensors, each once; each shard is as long as its header says; and no other shard lies
    there. Numbers are not looked at. Returns a note, or "". Raises Unreadable, NoAnswer."""
    if not index.name.endswith(SUFFIX):
        raise NoAnswer(f"{index.name} is no index of safetensors shards: its name has to end in {SUFFIX}")
    document = _object(index.read_bytes(), index.name)
    wanted = document.get("weight_map")
    if not isinstance(wanted, dict) or not wanted or not all(isinstance(shard, str) for shard in wanted.values()):
        raise Unreadable(f"{index.name} has no weight_map that names a shard for each tensor")
    shards = sorted(set(wanted.values()))
    _all_and_no_other(index, shards)
    total = 0
    for shard in shards:
        held = _tensors(index.parent / shard)
        total += sum(held.values())
        named = {tensor for tensor, place in wanted.items() if place == shard}
        if missing := named - held.keys():
            raise Unreadable(f"{shard} does not hold {_some(missing)}, which {index.name} says it does")
        if foreign := held.keys() - named:
            raise Unreadable(f"{shard} holds {_some(foreign)}, which {index.name} does not say of it")
    metadata = document.get("metadata")
    said = metadata.get("total_size") if isinstance(metadata, dict) else None
    return "" if said in (None, total) else f"{index.name} says {said} bytes in all, and the shards hold {total}"


def _all_and_no_other(index: Path, shards: Sequence[str]) -> None:
    stem = re.escape(index.name.removesuffix(SUFFIX))
    numbered = re.compile(rf"{stem}-(\d+)-of-(\d+)\.safetensors")
    if outside := [shard for shard in shards if Path(shard).name != shard or shard in ("", ".", "..")]:
        raise Unreadable(f"{index.name} names {_some(outside)}, which is not beside it")
    there = {name for name in os.listdir(index.parent) if numbered.fullmatch(name)}
    if absent := set(shards) - set(os.listdir(index.parent)):
        raise Unreadable(f"{_some(absent)} is not there, and {index.name} names it")
    if foreign := there - set(shards):
        raise Unreadable(f"{_some(foreign)} lies there, and {index.name} does not name it")
    for match in filter(None, map(numbered.fullmatch, shards)):
        if int(match[2]) != len(shards):
            raise Unreadable(f"{match[0]} is one of {int(match[2])} shards, and {index.name} names {len(shards)}")


def _tensors(shard: Path) -> dict[str, int]:
    """The bytes of each tensor, by a shard's header, which has to agree with its length."""
    size = shard.stat().st_size
    with shard.open("rb") as handle:
        begin = handle.read(8)
        length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else MAX_HEADER + 1
        if length > MAX_HEADER or 8 + length > size:
            raise Unreadable(f"{shard.name} is no safetensors file, or cut off in its header")
        header = _object(handle.read(length), shard.name)
    header.pop("__metadata__", None)
    found, end = {}, 0
    try:
        for tensor, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            start, stop = entry["data_offsets"]
            if start != end or stop < start:
                raise Unreadable(f"{shard.name}: {tensor} does not lie where its neighbour ends")
            found[tensor], end = stop - start, stop
    except (TypeError, KeyError, ValueError):
        raise Unreadable(f"{shard.name} has a header without offsets") from None
    if 8 + length + end != size:
        raise Unreadable(
            f"{shard.name} is cut off or too long: {size:,} bytes, and its header speaks of {8 + length + end:,}"
        )
    return found


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=unique_keys)
    except Unreadable as twice:
        raise Unreadable(f"{name} {twice}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unreadable(f"{name} is not a JSON object")
    return found


def _some(names: Iterable[str]) -> str:
    return some(sorted(names))


CHECKS: Mapping[str, Callable[[Path], str]] = {"hf-shards": hf_shards}
"""Name → the check. Returns a note, or ""."""
