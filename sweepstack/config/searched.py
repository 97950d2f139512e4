"""The cells of a search by the stack file and the log in the evidence, as entries of `cells.add`.

The first ones need no log: they are drawn from the file alone, by the extension `search`.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweepstack.config.project import project_name
from sweepstack.config.search import SearchConfig
from sweepstack.config.secrets import RawMistakes
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.extras import lacks
from sweepstack.core.search_log import PREFIX, SearchLog
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.onbox.common.placeholders import PLACEHOLDER

_OURS = re.compile(rf"{PREFIX}[0-9]+")


def search_of(values: dict[str, Any]) -> SearchConfig | None:
    """`search` of a sweep's plain values; None where there is none, or where its shape is wrong (told elsewhere)."""
    if not isinstance(values, dict) or values.get("search") is None:
        return None
    try:
        return SearchConfig.model_validate(values["search"])
    except ValidationError:
        return None


def with_search(values: dict[str, Any], project_root: Path, stack: str) -> dict[str, Any]:
    """The sweep's plain values with the cells of its search in `cells.add`, and those that a rule stopped in
    `cells.drop`; the same object where it has no search. Reads the log in the evidence.

    Raises ConfigError where the log can't be read, the extension is missing, or a package that its sampler needs.
    """
    search = search_of(values)
    if search is None:
        return values
    log = log_of(values, project_root, stack)
    return {**values, "cells": cells_with(search, log, values.get("cells"))}


def log_of(values: dict[str, Any], project_root: Path, stack: str) -> SearchLog:
    """The log of this sweep's search. Raises ConfigError where that can't be known."""
    pull_to = values.get("pull_to")
    uri = evidence_uri(project_root, pull_to) if isinstance(pull_to, str) else None
    if uri is None:
        return SearchLog()
    from sweepstack.evidence.search_log import log_at  # few stacks have a search, and each command reads a stack file

    try:
        return log_at(uri, partial(project_name, project_root), stack.rsplit("/", 1)[-1])
    except (SweepstackError, OSError) as error:
        raise ConfigError(f"which cells were drawn is not known, and nothing is changed: {error}") from error


def cells_with(search: SearchConfig, log: SearchLog, cells: Any) -> dict[str, Any]:
    """`cells` with those of the search. Raises ConfigError."""
    found: dict[str, Any] = dict(cells) if isinstance(cells, dict) else {}
    drawn = {name: step.params for name, step in log.suggested.items()} or {
        f"{PREFIX}{number}": params for number, params in enumerate(_first(search))
    }
    listed = found.get("add") or []
    if isinstance(listed, list | tuple):
        found["add"] = [*listed, *({"name": name, **params} for name, params in drawn.items())]
    if log.pruned and isinstance(found.get("drop") or {}, dict):
        found["drop"] = {**{name: step.why for name, step in log.pruned.items()}, **(found.get("drop") or {})}
    return found


def _first(search: SearchConfig) -> list[dict[str, Any]]:
    space = part_of("search", "space")
    if space is None:
        raise ConfigError(f"it needs {not_here('search')}")
    if search.sampler == "sobol" and (missing := lacks("search")):
        raise ConfigError(f"sampler: {missing}")
    return list(space.first(search))


def search_mistakes(values: dict[str, Any]) -> RawMistakes:
    """What of a search does not fit the rest of the stack file. `values`: without its cells."""
    search = search_of(values)
    if search is None:
        return
    cells, metrics, job = (_mapping(values.get(key)) for key in ("cells", "metrics", "job"))
    for key in ("grid", "zip"):
        for axis in _mapping(cells.get(key)):
            if axis in search.axes:
                yield ("search", "axes", axis), f"is in cells.{key}, too; an axis stands in one of them", None
    for key in ("list", "add"):
        for index, entry in enumerate(cells.get(key) or ()):
            name = _mapping(entry).get("name")
            if isinstance(name, str) and _OURS.fullmatch(name):
                yield ("cells", key, index, "name"), "is what a cell of the search is called; take another one", name
    texts = [job.get("run"), *_mapping(job.get("env")).values()]
    asked = {name for text in texts if isinstance(text, str) for name in PLACEHOLDER.findall(text)}
    for name, drawn in search.axes.items():
        if drawn.when and name in asked and name not in _mapping(cells.get("base")):
            fix = f"not every cell has it, and the job is given {{{name}}}; give it a default in cells.base"
            yield ("search", "axes", name), fix, None
    if search.metric is not None:
        known = metrics.get("y")
        listed = [known] if isinstance(known, str) else [one for one in known or () if isinstance(one, str)]
        if search.metric not in listed:
            near = did_you_mean(search.metric, listed) or "; name the file and its columns in metrics"
            yield ("search", "metric"), f"is no column of metrics.y{near}", search.metric


def at_axes(found: RawMistakes, values: dict[str, Any]) -> RawMistakes:
    """The same mistakes; those that lie in a drawn cell at their axis in the file."""
    written = len(_mapping(values.get("cells")).get("add") or ()) if search_of(values) is not None else None
    for loc, fix, value in found:
        drawn = written is not None and loc[:2] == ("cells", "add") and len(loc) > 3 and int(loc[2]) >= written
        yield (("search", "axes", loc[3]) if drawn else loc), fix, value


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
