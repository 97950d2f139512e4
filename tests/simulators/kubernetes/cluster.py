"""A real Kubernetes cluster for the tests: its own programs, real kubelets, real containers, all in namespaces.

Nothing of it is in this machine's own network, names or settings: it is reached at a port of 127.0.0.1 that this
process listens at (`gateway`), and its control groups lie below this process's own. Clusters stand side by side. One
ends with all that runs in it when it is closed, and when the process that started it dies, however it dies.

Needs root, and what `scripts/setup --kubernetes` installs: `require()` fails a test with what is missing.

What is not as elsewhere: no DNS, no Services but the API server's own (nothing translates addresses), no network
policies; the times of `parts`; all nodes have the cores and the memory of this machine, each for itself; where all
nodes of a cluster are silent no pod is given up, as everywhere, so a test of a lost node takes two.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.lib import pod_image
from scripts.lib.apt import OF_OPTION
from scripts.lib.go_tool import KUBERNETES
from scripts.lib.places import Places
from tests.simulators.gateway import Gateway
from tests.simulators.kubernetes import cgroups, control, parts
from tests.simulators.kubernetes.admin import Admin
from tests.simulators.kubernetes.enclosure import Enclosure, ip, until
from tests.simulators.kubernetes.node import Node
from tests.simulators.kubernetes.pki import Authority

PLACES = Places.of(Path(__file__).resolve().parents[3], os.environ)
IMAGE = pod_image.IMAGE
"""The image of pods: Debian with `python3`, `bash`, `tar`; HOME can be written by each user. The only one there is."""
STORAGE_CLASS = "shared"
"""The class of `KubernetesCluster.volume`: a claim of it gets a volume that was made before. Nothing provisions one."""
LATE_CLASS = "late"
"""The same, bound when a pod that uses the claim is placed."""
MEMORY = "8g"
"""What all files of a cluster may take at most, in memory."""


def missing() -> str:
    """What this machine lacks for a cluster, with how to get it; empty when nothing."""
    if why := pod_image.unusable() or cgroups.lacking():
        return f"a Kubernetes of the tests: {why}"
    absent = OF_OPTION["kubernetes"].missing()
    absent += [name for name in ("unshare", "nsenter", "setpriv") if shutil.which(name) is None]
    if not KUBERNETES.binary(PLACES).is_file():
        absent.append(KUBERNETES.title)
    if not pod_image.is_there(PLACES):
        absent.append("the image of pods")
    if absent:
        install = "`scripts/setup --dev --kubernetes` (`make test` does it)"
        return f"Kubernetes of the tests needs {', '.join(absent)}: {install}"
    return ""


def require() -> None:
    """Fails the test with what to install. Nothing that needs a cluster is ever skipped."""
    import pytest

    if why := missing():
        pytest.fail(why, pytrace=False)


@dataclass(frozen=True)
class Volume:
    """A persistent volume. `folder`: its files, as this machine sees them."""

    name: str
    folder: Path


class KubernetesCluster:
    """A running cluster. `kubeconfig`: a file of an administrator; `server`: the API server's URL; `admin`: requests
    without a client library; `nodes`: by name; `api`, `etcd`, `controllers`, `scheduler`: its parts, which can be ended
    and started. All waits are bounded. One thread's at a time, but for `admin`."""

    etcd: control.Etcd
    api: control.ApiServer
    controllers: control.Part
    scheduler: control.Part
    admin: Admin

    def __init__(self, keep: Path) -> None:
        self.keep = keep
        self.nodes: dict[str, Node] = {}
        self.inside: Enclosure
        self.kubeconfig: Path
        self.server = ""
        self.routed = set[str]()
        """Ranges of pods to which the control plane knows the way."""

    @classmethod
    def start(cls, keep: Path, *, nodes: int = 1, gpus: int = 0, api_options: Sequence[str] = ()) -> KubernetesCluster:
        """Starts one, and returns when all its nodes are Ready.

        `keep`: a folder that is empty or absent, for its logs and volumes. `nodes`: named n1, n2, …; `gpus`: of each,
        so many `nvidia.com/gpu` that have no devices behind them. `api_options`: more options of the API server.
        """
        require()
        made = cls(keep)
        try:
            made._start(nodes, gpus, api_options)
        except BaseException:
            made.stop()
            raise
        return made

    def stop(self) -> None:
        """Ends all that runs in it at once. Idempotent."""
        for node in self.nodes.values():
            if hasattr(node, "inside"):
                node.inside.close()
        for thing in (getattr(self, "admin", None), getattr(getattr(self, "api", None), "gateway", None)):
            if thing is not None:
                thing.close()
        if hasattr(self, "inside"):
            self.inside.close()

    def __enter__(self) -> KubernetesCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # -- what is in it

    def user(
        self,
        name: str,
        rules: Sequence[Mapping[str, Sequence[str]]] = (),
        *,
        namespace: str | None = None,
        groups: Sequence[str] = (),
    ) -> Path:
        """A kubeconfig of a user with these rights and no others, in a namespace or (None) in all of the cluster.

        `rules`: as in a Role: [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}]. Another call for
        the same name adds rights.
        """
        path = self.authority.folder / f"{name}.kubeconfig"
        if not path.exists():
            self.authority.kubeconfig(name, self.server, name, groups)
        if rules:
            self.allow([{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}], rules, namespace)
        return path

    def allow(
        self,
        subjects: Sequence[Mapping[str, str]],
        rules: Sequence[Mapping[str, Sequence[str]]],
        namespace: str | None = None,
    ) -> None:
        """Gives rights, in a namespace or (None) in all of the cluster, to `subjects` as a RoleBinding names them:
        {"kind": "ServiceAccount", "name": "default", "namespace": "x"}."""
        group = "rbac.authorization.k8s.io"
        kind = "Role" if namespace else "ClusterRole"
        at = f"/apis/{group}/v1" + (f"/namespaces/{namespace}" if namespace else "")
        name = f"tests-{secrets.token_hex(4)}"
        head = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
        self.admin.make(f"{at}/{kind.lower()}s", {**head, "kind": kind, "rules": list(rules)})
        bound = {"kind": kind, "name": name, "apiGroup": group}
        what = {**head, "kind": f"{kind}Binding", "roleRef": bound, "subjects": list(subjects)}
        self.admin.make(f"{at}/{kind.lower()}bindings", what)

    def namespace(self, name: str, **labels: str) -> str:
        """Makes a namespace, and returns when its default service account is there. `labels`: `__` stands for `/`, `_`
        for `-`; `pod_security`: restricted, baseline or privileged, which is enforced."""
        level = labels.pop("pod_security", "")
        named = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
        if level:
            named["pod-security.kubernetes.io/enforce"] = level
        self.admin.make("/api/v1/namespaces", {"metadata": {"name": name, "labels": named}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        until(lambda: self.admin.get(account), f"service account of {name}", told=self.told)
        return name

    def volume(
        self,
        name: str,
        *,
        node: str | None = None,
        storage_class: str = STORAGE_CLASS,
        reclaim: str = "Retain",
        gb: int = 1,
        claim: Mapping[str, Any] | None = None,
    ) -> Volume:
        """Makes a persistent volume: a folder that each node sees, as on a shared file system, or that only `node` may
        use; of this `claim` alone, where one is named. Each user can write to it, since kubelet gives such a folder no
        group (fsGroup). All access modes."""
        folder = self.keep / "volumes" / name
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        spec: dict[str, Any] = {
            "capacity": {"storage": f"{gb}Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": reclaim,
            "storageClassName": storage_class,
            "hostPath": {"path": f"/mnt/keep/volumes/{name}", "type": "Directory"},
        }
        if claim is not None:
            own = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
            spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **own}
        if node:
            match = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}
        self.admin.make("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        return Volume(name, folder)

    def compact(self) -> int:
        """The store forgets each state but the newest: a watch or a list from an older version is answered by 410, once
        the API server has forgotten it, too (`api.forget` does both). The number of the newest."""
        return self.etcd.compact()

    def log(self, program: str) -> Path:
        """Where a program of the control plane writes, as a path inside."""
        return Path(f"/mnt/keep/log/{program}.log")

    def told(self) -> str:
        """What there is to say when something did not come: what runs, the last warnings, pods, the ends of logs."""
        said = []
        for name, inside in (("control", self.inside), *((one.name, one.inside) for one in self._booted())):
            said.append(f"-- {name}: {inside.states() if inside.alive else 'off'}")
        if self.api_answers():
            for pod in self.admin.list("/api/v1/pods"):
                meta, status = pod["metadata"], pod["status"]
                said.append(
                    f"pod {meta['namespace']}/{meta['name']}: {status.get('phase')} {status.get('message', '')}"
                )
            for event in self.admin.list("/api/v1/events", fieldSelector="type=Warning")[-12:]:
                said.append(f"event {event['involvedObject'].get('name')}: {event['reason']}: {event['message'][:300]}")
        for log in sorted((self.keep / "log").glob("*.log")):
            said += [f"-- {log.name}", *log.read_text(errors="replace").splitlines()[-5:]]
        return "\n".join(said)

    def api_answers(self) -> bool:
        return hasattr(self, "admin") and self.admin.answers()

    # -- starting

    def _booted(self) -> list[Node]:
        return [node for node in self.nodes.values() if hasattr(node, "inside")]

    def _start(self, nodes: int, gpus: int, api_options: Sequence[str]) -> None:
        for folder in ("log", "volumes"):
            (self.keep / folder).mkdir(parents=True)
        self.authority = Authority(self.keep / "pki")
        mounts = [
            f"{self.keep.resolve()}:/mnt/keep",
            f"{KUBERNETES.binary(PLACES).parent}:/mnt/program:ro",
            f"{pod_image.folder(PLACES)}:/mnt/image:ro",
        ]
        name = f"sweepstack-{os.getpid()}-{secrets.token_hex(3)}"
        self.inside = Enclosure.of_a_cluster(name, [f"tmpfs:/mnt:size={MEMORY}", *mounts], self.keep / "log/keeper.log")
        ip(
            self.inside.pid,
            "link set lo up",
            "link add nodes type bridge",
            f"addr add {parts.CONTROL}/16 dev nodes",
            f"addr add {parts.SERVICE}/32 dev nodes",
            "link set nodes up",
        )
        self._certify()
        control.make(self, api_options)
        self.api.gateway = Gateway(self.inside.network, parts.PORT)
        self.server = f"https://127.0.0.1:{self.api.gateway.port}"
        self.kubeconfig = self.authority.kubeconfig("admin", self.server, "admin", ["system:masters"])
        pair = (self.authority.folder / f"admin.{kind}" for kind in ("crt", "key"))
        self.admin = Admin(self.server, self.authority.certificate, *pair)
        for number in range(1, nodes + 1):
            self.nodes[f"n{number}"] = Node(self, f"n{number}", number)
        control.begin(self)
        for node in self.nodes.values():
            node.prepare()
        control.go_on(self)
        for node in self.nodes.values():
            node.kubelet.start()
        self._furnish()
        for node in self.nodes.values():
            node.await_ready()
            if gpus:
                node.give_gpus(gpus)

    def _certify(self) -> None:
        issue, local = self.authority.issue, f"https://127.0.0.1:{parts.PORT}"
        hosts = ["127.0.0.1", "localhost", parts.CONTROL, parts.SERVICE, "kubernetes.default.svc", "kubernetes"]
        issue("api", "api", hosts=hosts)
        issue("api-client", "api", ["system:masters"])
        issue("accounts", "accounts")
        self.authority.kubeconfig("controllers", local, "system:kube-controller-manager")
        self.authority.kubeconfig("scheduler", local, "system:kube-scheduler")

    def _furnish(self) -> None:
        for name, mode in ((STORAGE_CLASS, "Immediate"), (LATE_CLASS, "WaitForFirstConsumer")):
            what = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode}
            self.admin.make("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": name}, **what})
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        until(lambda: self.admin.get(account), "service account", told=self.told)
