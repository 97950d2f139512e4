"""From `pulumi up` on a ready host to the first training process: `python -m bench.start_bench [rounds]`.

A new sweep of one cell each round, on a host that lets the key in and holds nothing of us yet, against what a person
types there by hand over a connection that is open already: a folder, rsync, `setsid nohup sh -c …`, a look at the log.
Both run the same job, whose first line is the time at which it ran. The stages are cut where the engine's event log,
the box's journal and that line say; the host is on loopback, so all of them go by one clock.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from bench.compared import compared
from tests.rented.host_stack import HostStack

JOB = """\
import time
print(time.time(), flush=True)
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--out", type=pathlib.Path)
(parser.parse_known_args()[0].out / "metrics.json").write_text('{"loss": 1.0}')
"""
STAGES = ("engine and program", "look at the host, box", "command", "ship", "start the runner", "first process")
SEALED_SECONDS = 120.0


@dataclass
class Events:
    """What the engine says while it works, each with the time at which it was heard: its own are whole seconds."""

    fifo: Path
    heard: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        os.mkfifo(self.fifo)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self.fifo.open(encoding="utf-8") as lines:
            for line in lines:
                self.heard.append((time(), json.loads(line)))

    def end(self) -> None:
        self._reader.join(30)

    def at(self, event: str, words: str) -> float:
        """When the first event of this kind came with such words in it. Raises RuntimeError when none did."""
        for when, one in self.heard:
            if words in json.dumps(one.get(event, {})):
                return when
        raise RuntimeError(f"the engine told of no {event} with {words}")


def measure(rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds: by stage and in all of `pulumi up`, and by hand. The first round is a warm-up."""
    took: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="sweepstack-bench-") as folder:
        for number in range(rounds + 1):
            took.append(_round(Path(folder) / str(number)))
    del took[0]
    columns = {key: [one[key] for one in took] for key in took[0]}
    return {
        "rounds": rounds,
        "stages": STAGES,
        **compared(columns, "up", "hand"),
    }


def _round(base: Path) -> dict[str, float]:
    stack = HostStack(base, cells=("seed0",))
    try:
        (stack.job / "train.py").write_text(JOB)
        stack.write_config()
        stack.edit_config(lambda sweep: sweep.update(artifacts={"metrics.json": {"load": "json", "keys": ["loss"]}}))
        stack.init()
        return {"hand": _by_hand(stack), **_by_up(stack)}
    finally:
        stack.end()


def _by_up(stack: HostStack) -> dict[str, float]:
    events = Events(stack.base / "events")
    began = time()
    done = stack.up("--event-log", str(events.fifo), env={"PULUMI_DEBUG_COMMANDS": "true"})
    events.end()
    if done.rc:
        raise RuntimeError(str(done))
    stack.wait_for(stack.sealed, "a sealed cell", SEALED_SECONDS)
    (log,) = stack.platform_root.glob("boxes/*/data/sweep/cells/seed0/1/log.txt")
    (started,) = (one for one in stack.journal("box-0") if one["event"] == "cell-started")
    ends = (
        events.at("resourcePreEvent", "sweepstack:index:Box::box-0"),
        events.at("resOutputsEvent", "sweepstack:index:Box::box-0"),
        events.at("resOutputsEvent", "command:remote:Command::box-0"),
        events.at("diagnosticEvent", "starting the runner"),
        datetime.fromisoformat(started["time"]).timestamp(),
        float(log.read_text().split()[0]),
    )
    return dict(_stages(began, ends)) | {"up": ends[-1] - began, "command returns": done.seconds}


def _stages(began: float, ends: tuple[float, ...]) -> Iterator[tuple[str, float]]:
    for name, end in zip(STAGES, ends, strict=True):
        yield name, end - began
        began = end


def _by_hand(stack: HostStack) -> float:
    """What a person types, each line after the other; the connection is open, and answers as if it were next door."""
    host = stack.host
    options = {
        "IdentityFile": host.key,
        "UserKnownHostsFile": stack.base / "known_hosts",
        "StrictHostKeyChecking": "accept-new",
        "ControlMaster": "auto",
        "ControlPath": stack.base / "mux",
        "ControlPersist": 60,
        "LogLevel": "ERROR",
    }
    ssh = ["ssh", "-F", "none", "-p", str(host.port), *(f"-o{name}={value}" for name, value in options.items())]
    login = f"{host.user}@127.0.0.1"
    env = {**os.environ, **stack.env}
    _typed([*ssh, login, "true"], env)
    began = time()
    _typed([*ssh, login, "mkdir -p run/code run/out"], env)
    _typed(["rsync", "-a", "-e", shlex.join(ssh), f"{stack.job}/", f"{login}:run/code/"], env)
    run = "exec python train.py --seed 0 --out ../out"
    _typed([*ssh, login, f"cd run/code && setsid nohup sh -c {shlex.quote(run)} > ../log 2>&1 < /dev/null &"], env)
    first = _typed([*ssh, login, "until [ -s run/log ]; do sleep 0.05; done; head -1 run/log"], env)
    _typed([*ssh, "-O", "exit", login], env)
    return float(first) - began


def _typed(argv: list[str], env: Mapping[str, str]) -> str:
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=60).stdout


if __name__ == "__main__":
    print(json.dumps(measure(*[int(word) for word in sys.argv[1:]]), indent=2))
