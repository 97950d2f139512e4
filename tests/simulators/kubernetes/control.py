"""The control plane of a cluster: etcd, API server, controllers and scheduler, and what can happen to them."""

from __future__ import annotations

import base64
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import httpx

from tests.simulators.gateway import Gateway
from tests.simulators.kubernetes import parts
from tests.simulators.kubernetes.enclosure import until

if TYPE_CHECKING:
    from tests.simulators.kubernetes.cluster import KubernetesCluster


class Part:
    """A program of the control plane."""

    def __init__(self, cluster: KubernetesCluster, name: str, argv: Sequence[str]) -> None:
        self._cluster, self.name, self.argv = cluster, name, list(argv)

    def kill(self) -> None:
        """Ends it as a crash does. Idempotent."""
        self._cluster.inside.kill(self.name)

    def start(self) -> None:
        """Starts it. Returns at once."""
        self._cluster.inside.start(self.name, self.argv, self._cluster.log(self.name))

    def freeze(self, frozen: bool = True) -> None:
        """It hangs: what is asked of it gets no answer. With False, it goes on."""
        self._cluster.inside.kill(self.name, signal.SIGSTOP if frozen else signal.SIGCONT)


class ApiServer(Part):
    """The API server. What it has stored is in etcd, which outlives it. `gateway`: the way to it from this machine,
    where connections are cut, slowed or fall silent."""

    gateway: Gateway

    def stop(self) -> None:
        """It is gone at once: connections end, and new ones are refused behind the gateway."""
        self.kill()

    def start(self, *, await_ready: bool = True) -> None:
        """It comes back; returns when it is ready. What it had remembered of the past is gone: a watch that goes on
        from a version of before is answered from etcd, or by 410 where that was compacted."""
        super().start()
        if await_ready:
            self.await_ready()

    def await_ready(self, seconds: float = 60) -> None:
        """Fails at once where it has ended."""

        def ready() -> bool:
            code = self._cluster.inside.states().get(self.name)
            assert code is None, f"the API server has ended with {code}\n{self._cluster.told()}"
            return self._cluster.admin.answers()

        until(ready, "API server", seconds, self._cluster.told)

    def forget(self) -> None:
        """It is stopped, and comes back without any past: each version that a client remembers is too old (410)."""
        self.stop()
        self._cluster.compact()
        self.start()


class Etcd(Part):
    """The store. It is reached by its own HTTP API, through a gateway that lives as long as one call."""

    def revision(self) -> int:
        """The number of the newest change."""
        return int(self._ask("range", {"key": _text(b"\0")})["header"]["revision"])

    def compact(self) -> int:
        """Forgets each state but the newest. Its number."""
        newest = self.revision()
        self._ask("compaction", {"revision": str(newest), "physical": True})
        return newest

    def answers(self) -> bool:
        try:
            return self.revision() >= 0
        except (httpx.HTTPError, AssertionError):
            return False

    def _ask(self, verb: str, what: dict[str, object]) -> dict[str, dict[str, str]]:
        gateway = Gateway(self._cluster.inside.network, 2379)
        try:
            said = httpx.post(f"http://127.0.0.1:{gateway.port}/v3/kv/{verb}", json=what, timeout=20, trust_env=False)
        finally:
            gateway.close()
        assert said.status_code == 200 or "has been compacted" in said.text, said.text
        answer: dict[str, dict[str, str]] = said.json()
        return answer


def begin(cluster: KubernetesCluster) -> None:
    """Starts the store and the API server, which needs a few seconds until it is ready."""
    cluster.etcd.start()
    until(cluster.etcd.answers, "etcd", told=cluster.told)
    cluster.api.start(await_ready=False)


def go_on(cluster: KubernetesCluster) -> None:
    """Starts the others, once the API server is ready."""
    cluster.api.await_ready()
    cluster.controllers.start()
    cluster.scheduler.start()


def make(cluster: KubernetesCluster, options: Sequence[str]) -> None:
    """Its parts, which do not run yet. `options`: more of the API server."""
    cluster.etcd = Etcd(cluster, "etcd", parts.ETCD)
    cluster.api = ApiServer(cluster, "api", parts.api_server(options))
    cluster.controllers = Part(cluster, "controllers", parts.CONTROLLERS)
    cluster.scheduler = Part(cluster, "scheduler", parts.SCHEDULER)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
