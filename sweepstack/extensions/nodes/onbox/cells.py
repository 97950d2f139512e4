"""What the runner asks for a cell over several nodes: the look at the nodes, and the cell's command.

The peers that are there are in spec.json, `nodes`, or in the environment of a worker that has an allocation of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import digest_of, hex_of, write_json_atomically
from sweepstack.onbox.common.nodes import Allocation
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE
from sweepstack.onbox.runner.environment import FINDS, folder_of, search
from sweepstack.onbox.runner.nodes import count_of
from sweepstack.onbox.runner.records import Entry
from sweepstack.onbox.runner.sealing import CellFailure
from sweepstack.onbox.runner.steps import SetupFailed, Steps

from . import preflight
from .command import probe_command
from .launch import argv

CHECK_SECONDS = 7200.0
"""The copy of an environment to all peers is a part of it."""
SOCKETS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Variables by which a job may name the interface of its ranks itself."""
RETRIES = 2
"""The runner's, where spec.json says nothing."""


def key_of(entry: Entry, spec: Mapping[str, Any]) -> str:
    """The key of a look at the nodes: what they need differs by code, set-up, Python and peers."""
    found = _allocation(spec)  # with its command, which names the job: another worker's look proves nothing here
    own: list[Any] = [found.as_json()] if found is not None else []
    own += [probe_command(entry.run), *(f"{name}={entry.env[name]}" for name in FINDS if name in entry.env)]
    own += [f"{name}={value}" for name, value in _sockets(entry, spec).items()]
    return digest_of(["nodes", entry.prepared, entry.code, _peers(entry, spec), *own])


def _sockets(entry: Entry, spec: Mapping[str, Any]) -> dict[str, str]:
    """The interfaces that the job names itself; not those that it only leaves out (`^`)."""
    given = {**(spec.get("env") or {}), **entry.env}
    return {name: str(given[name]) for name in SOCKETS if not str(given.get(name, "^")).startswith("^")}


def result_of(home: Path, entry: Entry, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the last look found, the first node first; empty where it found a problem."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return list(json.loads(_result(home, entry, spec).read_bytes())["nodes"])
    return []


def check(
    home: Path,
    spec: Mapping[str, Any],
    entry: Entry,
    running: set[int],
    stopping: threading.Event,
) -> str:
    """Brings the peers what a version's cells need, and looks whether the nodes fit together. Returns why not; "" when
    cells may start. Blocks, for an hour where an environment is copied."""
    count, peers = count_of(entry), _peers(entry, spec)
    if len(peers) < count - 1 and (spec.get("nodes") or {}).get("allocated"):
        return f"a cell of it runs on {count} nodes, and this worker has {len(peers) + 1}: `pulumi up` submits others"
    if len(peers) < count - 1:
        return (
            f"a cell of it runs on {count} nodes, and boxes.{spec['box']}.peers names {len(peers)} besides the first: "
            "name more of them"
        )
    code = home / "code" / hex_of(entry.code)
    said = bool((spec.get("nodes") or {}).get("restores"))
    if int(spec.get("retries", RETRIES)) and not preflight.restores(code, entry.run, entry.env, said):
        return (
            "a cell on several nodes that is tried again would begin at step 0: nothing in its code uses the "
            "checkpoint helper (checkpoints.md of the docs) or {checkpoints}. Use it; or say job.restores: true, if "
            "the job goes on from a checkpoint in another way; or job.retries: 0"
        )
    result, folder = _result(home, entry, spec), folder_of(home, entry)
    name = result.stem
    asked = {
        "home": str(home),
        "native_id": spec["native_id"],
        "durable": str(home.parent.parent / spec["durable"]),
        "python": spec["python"],
        "cell": {"look": probe_command(entry.run), "env": search(home, spec, entry)},
        "environment": str(folder) if folder is not None else "",
        "code": entry.code,
        "peers": peers,
        "sockets": _sockets(entry, spec),
        **_allocated(spec),
        "first": platform.node() or "the first node",
        "runner": str(_folder()),
        "result": str(result),
    }
    request = result.with_suffix(".asked.json")
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.path.expanduser("~"), "LANG": "C.UTF-8"}
    env.update({BOX_ID_VARIABLE: str(spec["native_id"]), "SWEEPSTACK_SETUP": name})
    log = home / "setup" / f"{name}.log"
    try:
        for needed in (result.parent, log.parent):
            needed.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            result.unlink()
        write_json_atomically(request, asked)
        step = Steps(log, env, [], time.monotonic() + CHECK_SECONDS, running, stopping)
        step.run([sys.executable, "-I", "-S", str(_folder() / "nodes.py"), "preflight", str(request)], home)
        found = json.loads(result.read_bytes())
    except SetupFailed as error:
        return f"the look at its nodes failed: {error} (log: data/sweep/setup/{log.name})"
    except (OSError, ValueError) as error:
        return f"the look at its nodes failed: {error}"
    return "; ".join(found["problems"])


def command(
    home: Path, spec: Mapping[str, Any], entry: Entry, run: str, grace: float, processes: int, paths: Mapping[str, Path]
) -> list[str]:
    """The command of a cell's process, whose order is written into its folder. `paths`: folder, out, scratch,
    checkpoint. Raises CellFailure, OSError."""
    nodes = result_of(home, entry, spec)
    if len(nodes) != count_of(entry):
        raise CellFailure("its nodes were not looked at")
    order = {
        "box": str(home.parent.parent),
        "home": str(home),
        "native_id": spec["native_id"],
        "durable": str(home.parent.parent / spec["durable"]),
        "python": spec["python"],
        "runner": str(_folder()),
        "cell": entry.cell,
        "code": entry.code,
        "run": run,
        "nodes": nodes,
        **_allocated(spec),
        "worker": os.environ.get(WORKER_VARIABLE, ""),
        "processes": max(1, processes),
        "grace": max(1.0, grace - 4),  # the rest is for its own end
        **{name: str(paths[name]) for name in ("out", "scratch", "checkpoint")},
    }
    file = paths["folder"] / "nodes.json"
    write_json_atomically(file, order)
    return argv(sys.executable, _folder(), file)


def _folder() -> Path:
    """Where `runner.py` and `nodes.py` lie."""
    return Path(os.path.abspath(__file__)).parents[3]


def _peers(entry: Entry, spec: Mapping[str, Any]) -> list[str]:
    """The peers of this version's cells: the first ones of the box's."""
    found = _allocation(spec)
    named = (spec.get("nodes") or {}).get("peers") or [] if found is None else list(found.nodes)[1:]
    return [str(name) for name in named][: count_of(entry) - 1]


def _allocation(spec: Mapping[str, Any]) -> Allocation | None:
    """The nodes of this worker's allocation; None where the box's peers are named."""
    if not (spec.get("nodes") or {}).get("allocated"):
        return None
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return Allocation.of_environment() or Allocation({}, [])
    return Allocation({}, [])


def _allocated(spec: Mapping[str, Any]) -> dict[str, Any]:
    found = _allocation(spec)
    return {"allocation": found.as_json()} if found is not None else {}


def _result(home: Path, entry: Entry, spec: Mapping[str, Any]) -> Path:
    return home / "nodes" / f"nodes-{hex_of(key_of(entry, spec))[:16]}.json"
