"""A box's folder tree in a temporary folder, with the real runner and real processes in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.records import Cell, Manifest
from sweepstack.evidence.manifest import manifest_digest, parse_manifest
from sweepstack.launch.ship import checkpoint_files
from sweepstack.onbox.common.canonical import canonical_json, digest_of, sha256_hex
from sweepstack.onbox.runner.probe import SWITCH
from tests.compiled import compiled_runner
from tests.oldest_python import onbox_python

CHECKPOINT = Path(__file__).resolve().parents[2] / "sweepstack" / "onbox" / "checkpoint"
IDENTITY = "abcdefghij"
SECONDS = 120.0
INTERPRETER = onbox_python()
"""What runs the runner; and cells, which find no package there."""

STEPS = """
import argparse, fcntl, json, os, random, sys, time
from pathlib import Path
from sweepstack_checkpoint import Checkpoint

seed, out, control = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
cell = os.environ["SWEEPSTACK_CELL"]
alone = open(control / f"alone-{cell}", "w")
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (control / f"overlap-{cell}").touch()
checkpoint = Checkpoint()
latest = checkpoint.load_latest()
rng, step, total = random.Random(seed), 0, []
if latest is not None:
    step, total, (version, internal, gauss) = json.loads(latest.read_text())
    rng.setstate((version, tuple(internal), gauss))
print(f"starts at {step} pid {os.getpid()}", flush=True)
while step < 12:
    total.append(rng.random())
    step += 1
    checkpoint.save(lambda path: path.write_text(json.dumps([step, total, rng.getstate()])), step)
    if step == 6:
        (control / f"middle-{cell}").touch()
        while (control / f"hold-{cell}").exists():
            time.sleep(0.01)
(out / "result.json").write_text(json.dumps(total))
"""
"""A job of 12 steps that depends on all that came before; told to, it waits in the middle of it."""

QUICK = "echo hello; printf '{{}}' > {out}/result.json".replace("{{}}", "{ }")


AROUND = """
import os, signal, sys
sys.path.insert(0, {runner!r})
from sweepstack.onbox.runner import main as runner, sealing, records
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
{change}
os._exit(runner.main(sys.argv))
"""


class Box:
    """One box: what the launcher would write, and looks at what the runner did."""

    def __init__(self, root: Path, *, generation: int = 0, **spec: Any) -> None:
        native_id = f"local-{secrets.token_hex(5)}"  # processes are found by it: never that of a test running beside
        self.root, self.home = root / native_id, root / native_id / "data" / "sweep"
        self.volume, self.control = root / "volume", root / "control"
        self.native_id = native_id
        self.started: list[subprocess.Popen[bytes]] = []
        self.path = os.environ["PATH"]
        self.around: list[str] = []  # a command that the runner is started by
        for folder in (self.home, self.volume, self.control, self.root / "mnt"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "mnt" / "durable").symlink_to(self.volume)
        self.code = self.ship({"steps.py": STEPS})
        (self.home / "checkpoint").mkdir()
        for source in checkpoint_files():
            (self.home / "checkpoint" / source.name).write_bytes(source.read_bytes())
        self.runner = self.home / "runner-test"
        shutil.copytree(compiled_runner(INTERPRETER), self.runner)
        self.settings: dict[str, Any] = {
            "schema": 1,
            "identity": IDENTITY,
            "box": "box-0",
            "native_id": native_id,
            "generation": generation,
            "durable": "mnt/durable",
            "slots": 1,
            "python": INTERPRETER,
            "env": {},
            "artifacts": [{"path": "result.json", "load": "json", "keys": [], "finite": "report", "min_bytes": 1}],
            "metrics": None,
            "retries": 1,
            "grace_seconds": 10,
        }
        self.set(**spec)

    # -- what the launcher does

    def set(self, **changes: Any) -> None:
        self.settings.update(changes)
        staged = self.home / "spec.json.tmp"
        staged.write_bytes(canonical_json(self.settings) + b"\n")
        os.replace(staged, self.home / "spec.json")

    def ship(self, files: Mapping[str, str]) -> str:
        """Ships a version of the code, as the launcher does, and its list of files. Returns its digest."""
        content = [[name, 0o644, sha256_hex(text.encode())] for name, text in sorted(files.items())]
        code = digest_of(content)
        folder = self.home / "code" / code.removeprefix("sha256:")
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(0o644)
        (self.home / "shipped").mkdir(exist_ok=True)
        self.list_of(code).write_bytes(canonical_json(content))
        return code

    def list_of(self, code: str) -> Path:
        return self.home / "shipped" / f"{code[7:]}.files.json"

    def append(self, *lines: Mapping[str, Any]) -> None:
        with open(self.home / "queue.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self.home / "queue.jsonl", "ab") as handle:
                handle.write(b"".join(canonical_json(line) + b"\n" for line in lines))

    def add(
        self,
        name: str,
        run: str = QUICK,
        *,
        env: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Cell:
        """`more`: keys of the queue line that older queues lack (`setup`, `retry`, `salt`), or another `code`."""
        cell = Cell(name=name, params=params)
        self.append({**self.line(cell, run, env), **(more or {})})
        return cell

    def line(self, cell: Cell, run: str = QUICK, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        given = {"params": cell.params, "config_digest": cell.config_digest, "code": self.code}
        return {"op": "add", "cell": cell.name, **given, "run": run, "env": dict(env or {})}

    def secrets(self, values: Mapping[str, str], mode: int = 0o600) -> None:
        path = self.home / "secrets.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(dict(values)))
        path.chmod(mode)

    def show_gpus(self, count: int, query: str = "") -> None:
        """What the driver's tool of a box with GPUs says; this machine has none, so its torch isn't asked for one.
        `query`: its answer to a query."""
        self.set(env={**self.settings["env"], SWITCH: "0"})
        tools = self.root / "tools"
        tools.mkdir(exist_ok=True)
        listing = "\n".join(f"GPU {n}: NVIDIA A100-SXM4-40GB (UUID: GPU-{n})" for n in range(count))
        tool = tools / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\ncase $1 in -L) echo '{listing}';; *) echo '{query}';; esac\n")
        tool.chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"

    def add_steps(self, name: str, seed: int = 1) -> Cell:
        return self.add(name, f"python steps.py {{seed}} {{out}} {self.control}", seed=seed)

    def drop(self, name: str, reason: str = "wrong") -> None:
        self.append({"op": "drop", "cell": name, "reason": reason})

    def start(self, *argv: str, script: Path | None = None, env: Mapping[str, str] | None = None) -> Runner:
        """Starts the runner as the launcher would. `script`: another program around it."""
        with open(self.home / "runner.log", "ab") as log:
            process = subprocess.Popen(
                [*self.around, INTERPRETER, str(script or self.runner / "runner.py"), str(self.home), *argv],
                cwd=self.home,
                env={"PATH": self.path, "LANG": "C.UTF-8", "SWEEPSTACK_BOX_ID": self.native_id, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return Runner(self, process)

    def run(self, *cells: str, script: Path | None = None, code: int = 0) -> None:
        """Runs the queue until it is drained."""
        assert self.start(script=script).ended() == code, self.log()
        for cell in cells:
            assert self.state(cell) == "sealed", self.log()

    # -- what the runner did

    def journal(self) -> Journal:
        path = self.home / "journal.jsonl"
        return parse_journal(path.read_bytes() if path.exists() else b"")

    def state(self, cell: str) -> str:
        found = self.journal().cells.get(cell)
        return found.state if found else "pending"

    def events(self, event: str, cell: str | None = None) -> list[Mapping[str, Any]]:
        entries = self.journal().entries
        return [one for one in entries if one["event"] == event and cell in (None, one.get("cell"))]

    def sealed(self, cell: str) -> Path:
        return self.volume / IDENTITY / "cells" / cell

    def manifest(self, cell: str) -> Manifest:
        """The manifest of a sealed cell, after all that it says was compared with what lies there."""
        folder = self.sealed(cell)
        data = (folder / "manifest.json").read_bytes()
        manifest = parse_manifest(data, IDENTITY, cell)
        assert self.journal().cells[cell].manifest == manifest_digest(data)
        lying = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert {file.path for file in manifest.files} | {"manifest.json"} == lying
        for file in manifest.files:
            content = (folder / file.path).read_bytes()
            assert (len(content), sha256_hex(content)) == (file.size, file.sha256)
        return manifest

    def output(self, cell: str, attempt: int = 1) -> str:
        return (self.home / "cells" / cell / str(attempt) / "log.txt").read_text()

    def pid(self, cell: str, attempt: int = 1) -> int:
        path = self.home / "cells" / cell / str(attempt) / "pid"
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), self.log)
        return int(json.loads(path.read_text())["pid"])

    def patrol(self) -> list[dict[str, Any]]:
        path = self.home / "patrol.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def log(self) -> str:
        return (self.home / "runner.log").read_text()

    def hold(self, cell: str) -> Path:
        path = self.control / f"hold-{cell}"
        path.touch()
        return path

    def in_the_middle(self, cell: str, attempt: int = 1) -> None:
        log = self.home / "cells" / cell / str(attempt) / "log.txt"
        wait_for(
            lambda: (self.control / f"middle-{cell}").exists() and log.exists() and bool(log.read_text()), self.log
        )

    def processes(self, *, cells: bool = False) -> Iterator[int]:
        """All that carries the box's id; or those of cells only, without the runner and what it asks."""
        mark = f"\0SWEEPSTACK_BOX_ID={self.native_id}\0".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb", buffering=0) as file:
                said = b"\0" + file.read() + b"\0"
                if mark in said and (not cells or b"\0SWEEPSTACK_CELL=" in said):
                    yield int(name)

    def clean(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Runner:
    """A started runner."""

    def __init__(self, box: Box, process: subprocess.Popen[bytes]) -> None:
        self.box, self.process = box, process

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self, seconds: float = SECONDS) -> int:
        return self.process.wait(seconds)

    def kill(self) -> None:
        """kill -9: the runner alone; its cells live on."""
        self.process.kill()
        self.process.wait()

    def until(self, cell: str, state: str, attempts: int = 1) -> None:
        def there() -> bool:
            found = self.box.journal().cells.get(cell)
            return found is not None and (found.state, found.attempts) == (state, attempts)

        wait_for(there, self.box.log)


def wait_for(there: Callable[[], bool], why: Callable[[], str], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, why()
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def around(box: Box, change: str) -> Path:
    """The runner, with something changed in it."""
    path = box.home / "around.py"
    path.write_text(AROUND.format(runner=str(box.runner), change=textwrap.dedent(change)))
    return path
