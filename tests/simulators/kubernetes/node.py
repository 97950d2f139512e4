"""One node of a cluster: an enclosure of its own with containerd and kubelet, and what can happen to it."""

from __future__ import annotations

import contextlib
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulators.kubernetes import parts
from tests.simulators.kubernetes.enclosure import Enclosure, ip, until

if TYPE_CHECKING:
    from tests.simulators.kubernetes.cluster import KubernetesCluster

_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet would set in the kernel: it finds it so, in files of the node's own, and leaves the machine's alone."""
_BLOBS = "io.containerd.content.v1.content/blobs"
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
READY_SECONDS = 90.0


class Daemon:
    """A program that the keeper of an enclosure runs: it can be killed, held and started again."""

    def __init__(self, node: Node, name: str, argv: list[str]) -> None:
        self._node, self.name, self._argv = node, name, argv

    def kill(self) -> None:
        """Ends it as a crash does; what it had started runs on. Idempotent."""
        self._node.inside.kill(self.name)

    def stop(self) -> None:
        """Ends it as an administrator does."""
        self._node.inside.kill(self.name, signal.SIGTERM)

    def start(self) -> None:
        """Starts it again. Returns at once. One that ends by itself is started anew, as by the init of a machine."""
        self._node.inside.start(self.name, self._argv, self._node.log(self.name), again=True)

    def freeze(self, frozen: bool = True) -> None:
        """It hangs from now on; with False it goes on."""
        self._node.inside.kill(self.name, signal.SIGSTOP if frozen else signal.SIGCONT)


class Node:
    """`address`: as the control plane knows it; `pods`: the range of its pods' addresses."""

    def __init__(self, cluster: KubernetesCluster, name: str, number: int) -> None:
        self._cluster, self.name, self.number = cluster, name, number
        self.address, self.pods = f"172.20.0.{10 + number}", f"10.244.{number}.0/24"
        self.inside: Enclosure
        self.gpus = 0
        self.containerd = Daemon(self, "containerd", [word.format(node=name) for word in parts.CONTAINERD])
        self.kubelet = Daemon(self, "kubelet", parts.kubelet(name, self.address))

    def log(self, program: str) -> Path:
        return Path(f"/mnt/keep/log/{self.name}-{program}.log")

    # -- what happens to it

    def partition(self) -> None:
        """From now on nothing passes between it and the rest of the cluster. Its pods run on."""
        ip(self._cluster.inside.pid, f"link set {self._card} down")

    def heal(self) -> None:
        """Its network is as it was."""
        ip(self._cluster.inside.pid, f"link set {self._card} up")

    def power_off(self) -> None:
        """All that runs on it ends at once, containers too. What it had stored stays. Idempotent."""
        self.inside.close()

    def power_on(self) -> None:
        """It boots from its disk. Returns at once: `await_ready` waits until it takes pods."""
        assert not self.inside.alive, f"{self.name} runs"
        self._boot()
        self.kubelet.start()

    def await_ready(self, ready: bool = True, seconds: float = READY_SECONDS) -> None:
        """Waits until the API server says so, and lets pods run there; with False, until it takes the node for silent
        or broken, and no longer: pods are given up a few seconds later."""
        said = f"{self.name} {'Ready' if ready else 'NotReady'}"
        until(lambda: self.ready is ready and not (ready and self._shunned), said, seconds, self._cluster.told)
        if ready and self.gpus:
            self.give_gpus(self.gpus)  # kubelet has set them to 0 when it registered

    @property
    def _shunned(self) -> bool:
        silent = {f"node.kubernetes.io/{word}" for word in ("not-ready", "unreachable")}
        return any(one["key"] in silent for one in self.taints)

    @property
    def taints(self) -> list[dict[str, str]]:
        """As the API server has them now."""
        found: list[dict[str, str]] = self.get().get("spec", {}).get("taints", [])
        return found

    @property
    def ready(self) -> bool:
        """As the API server has it now."""
        conditions = self.get().get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def get(self) -> dict[str, Any]:
        """The node, as the API server has it now."""
        return self._cluster.admin.get(f"/api/v1/nodes/{self.name}")

    def label(self, **labels: str | None) -> None:
        """Sets labels; None takes one away. `__` in a name stands for `/`, `_` for `-`: `nvidia.com` can't be said so,
        and `patch` takes anything."""
        named = {name.replace("__", "/").replace("_", "-"): value for name, value in labels.items()}
        self.patch({"metadata": {"labels": named}})

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> None:
        """Adds one taint. `NoExecute` also ends pods that do not tolerate it."""
        now = [one for one in self.taints if one["key"] != key]
        self.patch({"spec": {"taints": [*now, {"key": key, "value": value, "effect": effect}]}})

    def untaint(self, key: str) -> None:
        now = [one for one in self.taints if one["key"] != key]
        self.patch({"spec": {"taints": now}})

    def cordon(self, cordoned: bool = True) -> None:
        """No new pod is placed here."""
        self.patch({"spec": {"unschedulable": cordoned}})

    def patch(self, what: dict[str, Any]) -> None:
        """A merge patch of the node."""
        self._cluster.admin.patch(f"/api/v1/nodes/{self.name}", what)

    def give_gpus(self, count: int) -> None:
        """It says from now on that it has so many `nvidia.com/gpu`. There are no devices behind them."""
        self.gpus = count
        self._cluster.admin.patch(
            f"/api/v1/nodes/{self.name}/status",
            {"status": {"capacity": {"nvidia.com/gpu": str(count)}, "allocatable": {"nvidia.com/gpu": str(count)}}},
        )

    # -- starting

    @property
    def _card(self) -> str:
        return f"to-{self.number}"

    def prepare(self) -> None:
        """Makes its disk, which knows the image already, and starts it, but for kubelet. Returns at once."""
        image = self._cluster.inside.root("/mnt/image")
        own = self._cluster.inside.root(f"/mnt/{self.name}")
        disk = own / "var/lib/containerd"
        shutil.copytree(
            image, disk, symlinks=True,
            ignore=lambda at, names: names if at.endswith((f"/{_BLOBS}", f"/{_SNAPSHOTS}")) else (),
        )  # fmt: skip
        (own / "var/lib/cni/conf").mkdir(parents=True)
        (own / "var/log").mkdir()
        (own / "var/lib/cni/conf/10-pods.conflist").write_text(parts.network_config(self.pods))
        (own / "containerd.toml").write_text(parts.containerd_config())
        (own / "kubelet.json").write_text(parts.kubelet_config(self.name, self.address))
        for name, value in _KERNEL.items():
            (own / "kernel" / name).parent.mkdir(parents=True, exist_ok=True)
            (own / "kernel" / name).write_text(f"{value}\n")
        authority = self._cluster.authority
        authority.kubeconfig(
            self.name, f"https://{parts.CONTROL}:{parts.PORT}", f"system:node:{self.name}", ["system:nodes"]
        )
        authority.issue(f"{self.name}-serving", f"system:node:{self.name}", ["system:nodes"], [self.address, self.name])
        self._boot()

    def _boot(self) -> None:
        own, disk = f"/mnt/{self.name}", "/var/lib/containerd"
        snapshots = sorted(one.name for one in self._cluster.inside.root(f"/mnt/image/{_SNAPSHOTS}").iterdir())
        mounts = [
            f"{own}/var:/var",
            "tmpfs:/run",
            f"/mnt/image/{_BLOBS}:{disk}/{_BLOBS}:ro",
            *(f"/mnt/image/{_SNAPSHOTS}/{one}:{disk}/{_SNAPSHOTS}/{one}:ro" for one in snapshots),
            *(f"{own}/kernel/{name}:/proc/sys/{name}" for name in _KERNEL),
        ]
        self.inside = self._cluster.inside.inner(self.name, mounts, self._cluster.keep / "log" / f"{self.name}.log")
        self._connect()
        self.containerd.start()

    def _plugged(self) -> bool:
        """Whether its card could be made: the kernel takes the one of before away a moment after its processes."""
        with contextlib.suppress(AssertionError):
            ip(
                self._cluster.inside.pid,
                f"link add {self._card} type veth peer name eth0 netns {self.inside.pid}",
                f"link set {self._card} master nodes up",
            )
            return True
        return False

    def _connect(self) -> None:
        """A card that leads to the cluster's switch, and ways to the pods of each node."""
        until(self._plugged, f"card of {self.name}", 20)
        if self.pods not in self._cluster.routed:
            ip(self._cluster.inside.pid, f"route add {self.pods} via {self.address}")
            self._cluster.routed.add(self.pods)
        others = [node for node in self._cluster.nodes.values() if node is not self]
        ip(
            self.inside.pid,
            "link set lo up",
            f"addr add {self.address}/16 dev eth0",
            "link set eth0 up",
            f"route add {parts.SERVICES} via {parts.CONTROL}",
            *(f"route add {other.pods} via {other.address}" for other in others),
        )
        self.inside.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
