"""An Optuna study in SQLite: its trials become cells, its distributions what a search draws from.

Read by sqlite3, read-only; Optuna is not imported. A value is kept there as a number, and a category as its position.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sweepstack.config.edit.stack_file import flow
from sweepstack.extensions.importers.found import Found, drawn, param, quoted
from sweepstack.onbox.common.errors import No

HEAD = b"SQLite format 3\0"


def fits(path: Path) -> bool:
    """Whether the file is a database of SQLite."""
    with path.open("rb") as file:
        return file.read(16) == HEAD


def read(path: Path, shown: str) -> Found:
    """The newest study of the file. Raises No where it holds none, or more than one."""
    found = Found("Optuna study", shown)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            return _read(base, found)
    except sqlite3.Error as error:
        raise No(f"{shown}: no study of Optuna: {error}") from error


def _read(base: sqlite3.Connection, found: Found) -> Found:
    studies = base.execute("SELECT study_id, study_name FROM studies ORDER BY study_id").fetchall()
    if not studies:
        raise No(f"{found.file}: holds no study")
    study, name = studies[-1]
    if len(studies) > 1:
        found.lose(0, f"studies {', '.join(repr(other) for _, other in studies[:-1])}: the last, {name!r}, is read")
    spaces: dict[str, dict[str, Any]] = {}
    trials = base.execute(
        "SELECT trial_id, number, state FROM trials WHERE study_id = ? ORDER BY number", (study,)
    ).fetchall()
    values: dict[int, dict[str, Any]] = {}
    query = (
        "SELECT p.trial_id, p.param_name, p.param_value, p.distribution_json FROM trial_params p JOIN trials t "
        "ON t.trial_id = p.trial_id WHERE t.study_id = ? ORDER BY p.param_id"
    )
    for trial, key, value, text in base.execute(query, (study,)):
        space = spaces[key] = json.loads(text)
        values.setdefault(trial, {})[key] = external(space, value)
    waiting = base.execute(
        "SELECT a.trial_id, a.value_json FROM trial_system_attributes a JOIN trials t ON t.trial_id = a.trial_id "
        "WHERE t.study_id = ? AND a.key = 'fixed_params'",
        (study,),
    ).fetchall()
    for trial, text in waiting:
        values[trial] = json.loads(text) | values.get(trial, {})
    stopped: dict[str, list[int]] = {}
    for trial, number, state in trials:
        row = {found.name(key): param(value) for key, value in values.get(trial, {}).items()}
        if not row:
            found.lose(0, f"trial {number}: it has no parameters")
            continue
        found.rows.append({"name": f"trial-{number}"} | row)
        stopped.setdefault(str(state), []).append(number)
    if not found.rows:
        raise No(f"{found.file}: study {name!r} has no trial with parameters")
    for state in ("PRUNED", "FAIL"):
        if state in stopped:
            found.note(f"trials that were {state} run to their end here: {', '.join(map(str, stopped[state]))}")
    _doubled(found)
    _search(base, study, found, spaces)
    found.run = " ".join(["python train.py", *(f"{quoted(f'--{key}')} {found.slot(key)}" for key in spaces)])
    found.fill_gaps("not in all trials (a conditional axis)")
    found.note("a study names no script: the first words of `run` are a guess")
    return found


def external(space: dict[str, Any], value: float) -> Any:
    """The value of a trial: what the database keeps is a number."""
    kind = space["name"]
    if kind == "CategoricalDistribution":
        return space["attributes"]["choices"][int(value)]
    return int(value) if kind.startswith("Int") else float(value)


def _doubled(found: Found) -> None:
    """Trials of the same values are one cell."""
    seen: dict[str, str] = {}
    for row in list(found.rows):
        key = json.dumps({name: value for name, value in row.items() if name != "name"}, sort_keys=True)
        if key in seen:
            found.rows.remove(row)
            found.lose(0, f"{row['name']}: the same values as {seen[key]}, so the same cell")
        seen.setdefault(key, row["name"])


def _search(base: sqlite3.Connection, study: int, found: Found, spaces: dict[str, dict[str, Any]]) -> None:
    """What further trials would be drawn from."""
    axes: dict[str, Any] = {}
    for key, space in spaces.items():
        said, kind = space["attributes"], space["name"]
        if kind == "CategoricalDistribution":
            axes[found.name(key)] = {"choice": [param(value) for value in said["choices"]]}
            continue
        log = bool(said.get("log")) or "Log" in kind
        step = said.get("step", said.get("q"))
        axes[found.name(key)] = drawn(said["low"], said["high"], whole=kind.startswith("Int"), log=log, step=step)
    goals = base.execute(
        "SELECT direction FROM study_directions WHERE study_id = ? ORDER BY objective", (study,)
    ).fetchall()
    if len(goals) > 1:
        found.lose(0, f"{len(goals)} objectives: a search goes by one metric")
    found.further = {"axes": axes, "goal": str(goals[0][0]).lower() if goals else "minimize"}
    found.note(f"what more cells could be drawn by: search: {flow(found.further)}")
