"""Looks at boxes, volumes, processes and the engine's state without sweepstack's code."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweepstack.onbox.runner.attempt import DESCRIBE

BOX_ID = "SWEEPSTACK_BOX_ID"
VOLATILE = frozenset({"data/sweep/patrol.jsonl", "data/sweep/owner.json"})
"""What may change while nothing happens: the heartbeat of a live runner, and until when the box's owner holds it."""


NOT_COMPARED = ("modified", "created", "sourcePosition", "stackTrace")
"""What the engine notes about a resource that says nothing about it."""


@dataclass(frozen=True)
class Snapshot:
    """What must be the same after a refusal."""

    boxes: tuple[str, ...]
    files: Mapping[str, Mapping[str, str]]
    """box or volume → path → what is there: all tiers, without what a heartbeat writes"""
    processes: Mapping[str, tuple[int, ...]]
    """native id → pids of its live processes, the runner's among them"""
    births: tuple[str, ...]
    state: str
    """the engine's resources in canonical JSON, without times and without what a refresh writes"""


def tree(folder: Path, *, skip: Iterable[str] = VOLATILE) -> dict[str, str]:
    """path → kind, mode, size and SHA-256 (or where a link leads) of everything below `folder`; links not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name in skip:
            continue
        try:
            mode = path.lstat().st_mode
            if path.is_symlink():
                found[name] = f"link {os.readlink(path)}"
            elif path.is_dir():
                found[name] = f"dir {mode:o}"
            else:
                data = path.read_bytes()
                found[name] = f"file {mode:o} {len(data)} {hashlib.sha256(data).hexdigest()}"
        except FileNotFoundError:
            continue  # a temporary file of a live runner
    return found


def processes_of(native_ids: Iterable[str]) -> dict[str, list[int]]:
    """native id → pids of the processes that carry it in their environment, zombies left out."""
    found: dict[str, list[int]] = {native_id: [] for native_id in native_ids}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb", buffering=0) as file:
            said = b"\0" + file.read() + b"\0"
            for native_id in found:
                if f"\0{BOX_ID}={native_id}\0".encode() in said:
                    found[native_id].append(int(name))
    return {native_id: sorted(pids) for native_id, pids in found.items()}


def describes(pid: int) -> bool:
    """Whether a process only writes down a cell's environment: the runner starts one with each attempt, and it ends by
    itself."""
    with contextlib.suppress(OSError):
        return DESCRIBE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def descendants(pid: int) -> dict[int, str]:
    """pid → command line of every process below `pid`."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.name))
                commands[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    below: list[int] = []
    todo = [pid]
    while todo:
        found = children.get(todo.pop(), [])
        below += found
        todo += found
    return {child: commands[child] for child in below}


def stable_state(deployment: Mapping[str, Any]) -> str:
    """Resources and pending operations of a state, without what the engine or a refresh writes anyway."""
    resources = sorted((_stable(resource) for resource in deployment.get("resources", [])), key=lambda r: str(r["urn"]))
    return json.dumps(
        {"resources": resources, "pending": deployment.get("pending_operations") or []}, sort_keys=True, indent=1
    )


def _stable(resource: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in resource.items() if key not in NOT_COMPARED}
    # The engine keeps these in any order, and a refresh leaves empty ones out.
    kept["dependencies"] = sorted(resource.get("dependencies", []))
    properties = resource.get("propertyDependencies", {})
    kept["propertyDependencies"] = {name: sorted(urns) for name, urns in properties.items() if urns}
    # The provider's own entry repeats the stack config; outputs repeat inputs, and follow them at the next refresh.
    inputs = {} if str(resource["type"]).startswith("pulumi:providers:") else resource.get("inputs", {})
    kept["inputs"] = {key: value for key, value in inputs.items() if key != "live"}
    repeated = {*inputs, "live", "approval", "sweep"}
    kept["outputs"] = {key: value for key, value in resource.get("outputs", {}).items() if key not in repeated}
    return dict(_legible(kept))


def _legible(value: Any) -> Any:
    """Without what a secret was encrypted to, which is another one each time."""
    if isinstance(value, dict):
        return {key: _legible(one) for key, one in value.items() if key != "ciphertext"}
    return [_legible(one) for one in value] if isinstance(value, list) else value


def different(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The paths that are not the same."""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return "; ".join(f"{name}: {before.get(name)} → {after.get(name)}" for name in names[:8])


def line_diff(before: str, after: str) -> str:
    """The lines that are not the same."""
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))
