"""A sweep whose box is in a real Kubernetes cluster, driven handler by handler: no engine."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

import httpx
import pytest

from sweepstack.core.resources import BoxInputs, BoxState, QueueInputs
from sweepstack.extensions.kubernetes import channel as pod_channel
from sweepstack.extensions.kubernetes.api import claim_name
from sweepstack.extensions.kubernetes.objects import SHARED
from sweepstack.extensions.kubernetes.platform import KubernetesPlatform
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import NotYetGone
from sweepstack.platforms.registry import load_platform
from tests.extensions.shared_queue import SharedQueueSweep
from tests.simulators.kubernetes import IMAGE, STORAGE_CLASS, KubernetesCluster
from tests.simulators.kubernetes.enclosure import until
from tests.unit.provider.support import BOX, QUEUE, approval_for, approved

SECONDS = 150.0
"""A deadline, for a machine that has much else to do."""
CONTROL = "/sweepstack/control"
TRAIN = f"""\
word=$1 out=$2 kept=$3 control={CONTROL} cell=$SWEEPSTACK_CELL
exec 9>"$control/alone-$cell"
flock -n 9 || echo "$cell" >> "$control/overlap"
[ ! -e "$kept/step" ] || echo "$cell" >> "$control/resumed"
echo 1 > "$kept/step"
echo "$cell $word" >> "$control/started"
trap 'echo "$cell" >> "$control/told"; exit 143' TERM
if [ -e "$control/eat-$cell" ]; then python3 -c "bytearray(300_000_000)"; kill -9 -1; fi
while [ -e "$control/hold-$cell" ]; do sleep 0.1; done
printf '{{"word": "%s"}}' "$word" > "$out/result.json"
"""
"""The job: it notes each start, whether it found a checkpoint, and when it is not the only process that trains its
cell. Its volume is one file system of this machine's kernel, whichever node a pod is on."""
MOST_COMMANDS = 3
"""From a fault to nothing."""


def settle(there: pytest.MonkeyPatch, folder: Path, cluster: KubernetesCluster) -> None:
    """For a test in this process: its folder for all that is kept, and the cluster."""
    there.setattr(os, "fsync", lambda _: None)
    there.setenv("XDG_DATA_HOME", str(folder / "data"))
    there.setenv("PULUMI_BACKEND_URL", f"file://{folder}/state")
    there.setenv("KUBECONFIG", str(cluster.kubeconfig))


def forget_pods() -> None:
    """Ends this process's connections to pods, as its own end does."""
    for links in pod_channel._SHARED.values():
        links.close()
    pod_channel._SHARED.clear()


class KubeSweep(SharedQueueSweep):
    """As `Sweep`; its boxes lie in a namespace of its own of `cluster`, whose one volume is `here`. `volume`: False for
    none; `shared`: pods of several nodes mount it. `job`: inputs of the job; `scheduler`: what its workers ask for."""

    def __init__(
        self, folder: Path, cluster: KubernetesCluster, *, volume: bool = True, shared: bool = False, **scheduler: Any
    ) -> None:
        self.cluster, self.admin, self.shared = cluster, cluster.admin, shared
        self.namespace = cluster.namespace(f"t-{secrets.token_hex(4)}", pod_security="restricted")
        self.here = cluster.volume(self.namespace).folder if volume else folder / "nothing"
        self.scheduler: dict[str, Any] = {
            "workers": 2, "cpu": 0.1, "memory_bytes": 200 << 20, "grace_seconds": 2.0, **scheduler,
            "pods": {"image": IMAGE, **scheduler.get("pods", {})},
        }  # fmt: skip
        self.job: dict[str, Any] = {"slots": 1, "retries": 0}
        super().__init__(folder)
        if volume:
            self._lay()
        (self.project / "job" / "train.sh").write_text(TRAIN)

    def place_volume(self) -> None:
        """The volume comes, of a sweep that was made without."""
        self.here = self.cluster.volume(self.namespace).folder
        self._lay()

    def _lay(self) -> None:
        self.control = self.here / "control"
        self.control.mkdir(parents=True)
        self.control.chmod(0o777)

    # what differs from a sweep on this machine

    def adapter(self, _name: str = "") -> str:
        return f"kubernetes:{self.namespace}/tests"

    @property
    def platform(self) -> KubernetesPlatform:  # type: ignore[override]
        found = load_platform(self.adapter())
        assert isinstance(found, KubernetesPlatform)
        return found

    def root(self, box: BoxState) -> Path:
        return self.here / "box"

    def box_inputs(self, name: str = "box-0", **changes: Any) -> BoxInputs:
        resources = {"disk": "1GB", "storage_class": STORAGE_CLASS} | ({SHARED: True} if self.shared else {})
        return super().box_inputs(name, **({"resources": resources, "pods": self.scheduler["pods"]} | changes))

    def queue_inputs(self, box: BoxState, *cells: str, **changes: Any) -> QueueInputs:
        job = {"run": "sh train.sh {word} {out} {checkpoints}", "grace_seconds": 2.0, "scheduler": self.scheduler}
        return super().queue_inputs(box, *cells, **(changes | {"job": job | self.job | changes.get("job", {})}))

    # what is in the cluster

    def path(self, kind: str, name: str = "") -> str:
        group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
        name = claim_name(name) if kind == "persistentvolumeclaims" else name
        return f"{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def pods(self, role: str = "worker") -> list[dict[str, Any]]:
        return self.admin.list(self.path("pods"), labelSelector=f"sweepstack.dev/role={role}")

    def running(self) -> list[dict[str, Any]]:
        return [pod for pod in self.pods() if pod["status"].get("phase") == "Running"]

    def asked_for(self) -> list[str]:
        """The Jobs by which workers begin, or wait."""
        jobs = self.admin.list(self.path("jobs"))
        return [job["metadata"]["name"] for job in jobs if not job["spec"].get("suspend")]

    def left(self) -> list[str]:
        """The objects of ours that are there."""
        return [
            f"{kind}/{one['metadata']['name']}"
            for kind in ("pods", "jobs", "persistentvolumeclaims")
            for one in self.admin.list(self.path(kind))
        ]

    def pod_of(self, box: BoxState, cell: str) -> dict[str, Any]:
        """The pod whose worker has begun a cell last."""
        uid = self.worker_of(box, cell).removesuffix(".0")
        return next(pod for pod in self.pods() if pod["metadata"]["uid"] == uid)

    # what is on the box

    def noted(self, what: str) -> list[str]:
        """Cells that were told to end (`told`), or found a checkpoint (`resumed`)."""
        path = self.control / what
        return path.read_text().split() if path.exists() else []

    def let(self, *cells: str) -> None:
        for cell in cells:
            (self.control / f"hold-{cell}").unlink(missing_ok=True)

    def until(self, what: Any, said: str) -> None:
        until(what, said, SECONDS, self.picture)

    def until_begun(self, *cells: str) -> None:
        self.until(lambda: set(self.starts()) >= set(cells), f"start of {cells}")

    def until_sealed(self, box: BoxState, *cells: str) -> None:
        wanted = set(cells or self.roster)
        self.until(lambda: wanted <= self.sealed(box), f"seals of {wanted}")

    def picture(self) -> str:
        """What is there, for a failure's message."""
        parts = [self.cluster.told()]
        for box in self.boxes:
            path = self.root(box) / box_layout.JOURNAL
            parts += path.read_text(errors="replace").splitlines()[-12:] if path.exists() else []
            with contextlib.suppress(Exception):
                parts.append(str(self.channel(box).workers()))
        with contextlib.suppress(AssertionError, httpx.HTTPError):
            for pod in self.pods():
                parts += [
                    f"-- {pod['metadata']['name']}",
                    self.admin.text(f"{self.path('pods', pod['metadata']['name'])}/log"),
                ]
        return "\n".join(parts)

    def ended(self, box: BoxState) -> None:
        """It ends after pull, verify and approval; then nothing of it is left."""
        channel = self.channel(box)
        self.until(lambda: not channel.lock_held(box_layout.RUNNER_LOCK), "end of the workers")
        state = approved(box, approval_for(box, receipt=self.verified(box)))
        for last in (False, False, True)[-MOST_COMMANDS:]:
            try:
                BOX.delete(self.op(), box.native_id, state)
                break
            except NotYetGone:
                assert not last, self.picture()
        assert self.left() == []

    def close(self) -> None:
        """Takes away all that is in the namespace, whatever holds it."""
        self.release()
        for kind in ("jobs", "pods", "persistentvolumeclaims"):
            for one in self.admin.list(self.path(kind)):
                path = self.path(kind, one["metadata"]["name"])
                with contextlib.suppress(AssertionError):  # it is gone
                    self.admin.patch(path, {"metadata": {"annotations": {"sweepstack.dev/ending-at": "now"}}})
                    self.admin.patch(path, {"metadata": {"finalizers": None}})
                    self.admin.delete(path, gracePeriodSeconds=0, propagationPolicy="Background")
        self.admin.delete(f"/api/v1/persistentvolumes/{self.namespace}")
        self.admin.delete(f"/api/v1/namespaces/{self.namespace}")
        self.boxes.clear()


class Held:
    """A sweep whose two workers hold a cell each; `more` cells wait. `alone`: one worker, and it holds the cell `a`.
    `box`: its box, where that is made already."""

    def __init__(self, sweep: KubeSweep, more: int = 1, *, alone: bool = False, box: BoxState | None = None) -> None:
        self.sweep = sweep
        first = ("a",) if alone else ("a", "b")
        sweep.scheduler["workers"] = len(first)
        self.roster = (*first, *(f"c{number}" for number in range(more)))
        sweep.roster = self.roster
        sweep.hold(*first)
        self.box = box or sweep.box()
        self.queue = sweep.queue(self.box)
        sweep.until_begun(*first)

    def up(self) -> None:
        """What an `up` does to the queue."""
        self.queue = QUEUE.update(
            self.sweep.op("Queue"), "q", self.queue, self.sweep.queue_inputs(self.box, *self.roster)
        )

    def status(self) -> str:
        """What `sweepctl status` says of the workers."""
        return str(self.sweep.channel(self.box).workers()["words"])

    def ends_well(self, *, starts: int = 1) -> None:
        """Lets all go on, with one `up` where workers are missing: every cell is sealed once, none began more often
        than `starts`."""
        sweep = self.sweep
        sweep.release()

        def done() -> bool:
            if set(self.roster) <= sweep.sealed(self.box):
                return True
            failed = sweep.events(self.box, "cell-failed")  # no test has a cell that fails for good
            assert not failed, f"{failed}\n{sweep.picture()}"
            if not sweep.channel(self.box).lock_held(box_layout.RUNNER_LOCK):
                self.up()
            return False

        sweep.until(done, "all seals")
        sweep.assert_honest(self.box)
        assert max(sweep.starts().values()) <= starts, sweep.picture()

    def ended(self) -> None:
        """See `KubeSweep.ended`."""
        self.sweep.ended(self.box)
