"""A box on a volume of a real cluster, laid out without the engine: what its pods do is seen from this machine."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweepstack.core.journal import parse_journal
from sweepstack.core.records import Cell
from sweepstack.extensions.kubernetes import workers
from sweepstack.extensions.kubernetes.api import BOX, Cluster, labels_of
from sweepstack.extensions.kubernetes.objects import HOLD
from sweepstack.extensions.kubernetes.onbox import pilot
from sweepstack.onbox.common import box_layout
from tests.onbox.harness import Box

SECONDS = 90.0
IMAGE = "localhost/sweepstack/box:1"
CONTROL = "/sweepstack/control"
TRAIN = f"""\
cd {CONTROL}; touch on-$SWEEPSTACK_CELL
exec 9> alone-$SWEEPSTACK_CELL; flock -n 9 || echo $SWEEPSTACK_CELL >> twice
trap 'echo $SWEEPSTACK_CELL >> told; exit 143' TERM
if [ -e die-$SWEEPSTACK_CELL ]; then rm die-$SWEEPSTACK_CELL; python3 -c 'bytearray(300000000)'; kill -9 $PPID; fi
while [ -e hold-$SWEEPSTACK_CELL ]; do sleep 0.1; done
echo 1 > {{out}}/result.json"""
"""The job: when it is not the only process that trains its cell, it says so. The volume is one file system of this
machine's kernel, whichever node a pod is on."""


class Laid:
    """`folder`: the volume's, as this machine sees it."""

    def __init__(self, cluster: Cluster, native_id: str, folder: Path, volume: str, scratch: Path) -> None:
        self.cluster, self.native_id, self.folder = cluster, native_id, folder
        self.control, self.home = folder / "control", folder / "box" / box_layout.HOME
        for name in ("home", "control"):
            (folder / name).mkdir()
        box = Box(scratch)
        for path, source, _ in workers.pilot_files():
            (box.home / "pilot" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, box.home / "pilot" / path)
        there = f"/sweepstack/box/{box_layout.HOME}"
        state = ["/usr/bin/python3", f"{there}/pilot/worker_state.py", native_id, there]
        free = {"bytes": 0, "inodes": 0}
        box.set(
            native_id=native_id, python="/usr/bin/python3", shared={"worker_state": state}, min_free=free, retries=3,
            patrol_seconds=1, grace_seconds=3,
        )  # fmt: skip
        (box.root / "mnt" / "durable").unlink()
        (box.root / "mnt" / "durable").mkdir()
        shutil.copytree(box.root, folder / "box", symlinks=True)
        self._box = box
        box.home = self.home
        box.clean()
        runs = f"exec /usr/bin/python3 -E -s {there}/pilot/pilot.py {there} runner-test/runner.py\n"
        self.keep({pilot.START: runs.encode()})
        self._owned()
        metadata = {"name": native_id, "labels": {BOX: native_id}, "finalizers": [HOLD]}
        resources = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "shared", "volumeName": volume}
        cluster.create(
            "pvc",
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
             "spec": {**spec, "resources": resources}},
        )  # fmt: skip

    def _owned(self) -> None:
        """All of it is the pods' user's: kubelet gives such a volume no group."""
        for path in [self.folder, *self.folder.rglob("*")]:
            if not path.is_symlink():
                shutil.chown(path, 65532, 65532)

    def add(self, *cells: str, hold: bool = False) -> None:
        for cell in cells:
            if hold:
                (self.control / f"hold-{cell}").touch()
            self._box.append(self._box.line(Cell(name=cell, params={"n": cell}), TRAIN))
        self._owned()

    def release(self, *cells: str) -> None:
        for cell in cells:
            (self.control / f"hold-{cell}").unlink(missing_ok=True)

    def keep(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_bytes(data)

    def top_up(self, cells: int = 8, *, keep: bool = True, **asked: Any) -> str:
        scheduler = {
            "workers": 2, "cpu": 0.1, "memory_bytes": 200 << 20, "grace_seconds": 3.0, **asked,
            "pods": {"image": IMAGE, **asked.get("pods", {})},
        }  # fmt: skip
        of = (self.cluster, self.native_id, self.cluster.account(), scheduler, cells)
        return workers.top_up(*of, keep=self.keep if keep else None, stopped=self.stopped)

    def stopped(self) -> dict[str, str]:
        return workers.ends_in(b"\n".join(json.dumps(dict(one)).encode() for one in self.events()))

    def told(self) -> dict[str, Any]:
        return workers.told(self.cluster, self.native_id, self.cluster.account())

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.list("pod", labels_of(self.native_id))

    def running(self, node: str = "") -> list[dict[str, Any]]:
        found = [pod for pod in self.pods() if pod["status"]["phase"] == "Running"]
        return [pod for pod in found if node in ("", pod["spec"].get("nodeName"))]

    def events(self) -> list[Mapping[str, Any]]:
        """The journal's lines; fails where the chain is broken."""
        path = self.home / "journal.jsonl"
        data = path.read_bytes() if path.exists() else b""
        data = data[: data.rfind(b"\n") + 1]
        parse_journal(data)
        return [json.loads(line) for line in data.splitlines()]

    def sealed(self) -> set[str]:
        return {str(one["cell"]) for one in self.events() if one["event"] == "cell-sealed"}

    def holder(self, cell: str) -> str:
        """The pod's uid whose worker began this cell last."""
        return next(
            str(e["worker"]) for e in reversed(self.events()) if (e["event"], e.get("cell")) == ("cell-started", cell)
        )[:-2]

    def await_begun(self, *cells: str) -> None:
        """Until the cells' own processes run, and the cluster knows of their pods, which it hears a moment later."""
        self.until(lambda: all((self.control / f"on-{cell}").exists() for cell in cells))
        self.until(lambda: {self.holder(cell) for cell in cells} <= {pod["metadata"]["uid"] for pod in self.running()})

    def until(self, what: Callable[[], Any], seconds: float = SECONDS) -> Any:
        ends = time.monotonic() + seconds
        while not (found := what()):
            late = time.monotonic() > ends
            assert not late, (self.told()["words"], [(one["event"], one.get("cell")) for one in self.events()])
            time.sleep(0.2)
        return found

    def must_be_well(self) -> None:
        """No cell was two workers' at once."""
        assert not (self.control / "twice").exists()
