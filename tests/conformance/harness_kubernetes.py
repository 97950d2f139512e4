"""How to break the way to a Kubernetes cluster, and what lies there: a real one, behind a proxy of the tests."""

from __future__ import annotations

import contextlib
import secrets as dice
import shutil
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sweepstack.extensions.kubernetes import power
from sweepstack.extensions.kubernetes.api import claim_name, id_of
from sweepstack.onbox.host.platform import BoxRequest, Platform
from sweepstack.platforms.registry import load_platform
from tests.conformance import rental_harness
from tests.conformance.harness import FAULTS, WIRE, created_at_once
from tests.simulators.kubernetes import IMAGE, STORAGE_CLASS
from tests.simulators.kubernetes.admin import Refused
from tests.simulators.kubernetes.enclosure import until
from tests.simulators.kubernetes.fixture import cluster_of_this_process
from tests.simulators.kubernetes.front import REVOKED, Front

PACE = "0.01"
PREFIX = "sweepstack.dev/"
LINGERS = "tests.example/lingers"
"""A finalizer of another program on the claims."""
NONSENSE = "transcended"
END_SECONDS, LINGER_SECONDS = 4.0, 1.5
TIMEOUT = "30"
KINDS: rental_harness.Kinds = {
    **{name: rental_harness.KINDS[name] for name in sorted(WIRE | {"error_after", "lost_answer"})},
    "no_key": (REVOKED, {}),
}
"""What the proxy plays: fault → its kind there, with parameters."""
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "out_of_capacity": ("create",),
    "never_ready": ("create",),
    "dies_while_starting": ("create",),
    "vanished": ("read", "delete"),
    "odd_status": ("read", "delete"),
    "delete_lingers": ("delete",),
    "delete_stays": ("delete",),
    "foreign_account": ("read", "delete"),
}
"""What is done to the cluster itself: fault → the verbs that meet it."""


class Harness:
    """See `harness.Harness`. A namespace for each world, in the one cluster of the process."""

    adapter = "kubernetes"
    host = False
    wire = True
    price = 0.25
    killed_by_stop: tuple[str, ...] = ()
    kept_by_stop = ("data", "scratch", "mnt/durable")
    plays = frozenset(
        [(fault, verb) for fault in KINDS for verb in ("create", "read", "delete")]
        + [(fault, verb) for fault, verbs in ELSEWHERE.items() for verb in verbs]
    )
    impossible = frozenset(
        {
            "stale_list",  # a list without a resourceVersion is read by quorum: none is older than the last write
            "low_balance",  # the API knows no money
            "preempted",  # a claim is not; a worker's pod is, which is a matter of the queue (test_lost_pods.py)
            "zero_gpus",  # a box has no cards: its workers ask for them, each for itself
            "no_room",  # a start takes none
            "says_no",  # its errors have a status
            "refused_yet_made",  # there are no spot boxes, so no bids
        }
    )
    proved_by = "tests/rented/test_kube.py, tests/extensions/kubernetes"
    quick: frozenset[str | tuple[str, str]] = frozenset(
        {
            "test_each_fault_is_played_somewhere",
            "test_another_accounts_box_is_not_touched",
            "test_a_lost_answer_is_looked_up_and_adopted",
        }
    )
    where: ClassVar[dict[str, tuple[str, ...]]] = {
        "create": ("POST */persistentvolumeclaims", "POST */pods"),
        "read": ("GET *",),
        "delete": ("DELETE */persistentvolumeclaims/*", "PATCH */persistentvolumeclaims/*"),
    }

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch = monkeypatch
        self._cluster = cluster_of_this_process()
        self._admin = self._cluster.admin
        word = dice.token_hex(4)
        self._namespace, self._other = f"t-{word}", f"u-{word}"
        for name in (self._namespace, self._other):
            self._cluster.namespace(name, pod_security="restricted")
        token = f"token-{dice.token_hex(12)}"
        self.secrets = (token,)
        self._front = Front(self._cluster, tmp_path / "front", token, self._namespace)
        self._front.made = self._made
        self._image, self._dies = IMAGE, False
        self._volumes: list[Any] = []
        self._provided: set[str] = set()
        self._providing = threading.Lock()
        self._timer: threading.Timer | None = None
        for name, value in {
            "HOME": str(tmp_path),
            "KUBECONFIG": str(self._front.kubeconfig),
            "SWEEPSTACK_API_PACE": PACE,
        }.items():
            monkeypatch.setenv(name, value)
        self._set()

    def _set(self) -> None:
        self._patch.setenv("SWEEPSTACK_API_TIMEOUT", TIMEOUT)
        self._patch.setattr(power, "END_SECONDS", END_SECONDS)

    @property
    def at(self) -> str:
        return f"kubernetes:{self._namespace}/tests"

    def connect(self) -> Platform:
        return load_platform(self.at)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        resources = {"disk": "1GB", "storage_class": STORAGE_CLASS}
        known = {"tag": tag, "name": "box-0", "price_per_hour": self.price, "resources": resources}
        known["pods"] = {"image": self._image}
        return BoxRequest(**{**known, **changes})

    # -- the platform's own books

    def rentals(self) -> set[str]:
        return {id_of(claim) for claim in self._claims()}

    def doubled(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for claim in self._claims():
            found.setdefault(claim["metadata"]["annotations"][f"{PREFIX}tag"], []).append(claim["metadata"]["name"])
        return {tag: names for tag, names in found.items() if len(names) > 1}

    def _path(self, kind: str, name: str = "") -> str:
        name = claim_name(name) if kind == "persistentvolumeclaims" else name
        return f"/api/v1/namespaces/{self._namespace}/{kind}" + (f"/{name}" if name else "")

    def _claims(self) -> list[dict[str, Any]]:
        return self._admin.list(self._path("persistentvolumeclaims"))

    # -- what goes wrong

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        assert fault in FAULTS
        if fault in KINDS:
            kind, params = KINDS[fault]
            if kind.startswith("hang"):  # an answer never comes, or the next attempt brings it
                self._patch.setenv("SWEEPSTACK_API_TIMEOUT", "0.5" if verb == "read" and times is None else "2")
            for place in ("*",) if fault == "no_key" else self.where[verb]:
                self._front.faults.add(kind, place, times=times, **params)
            return
        {
            "out_of_capacity": self._fill,
            "never_ready": self._lose_image,
            "dies_while_starting": self._kill_readers,
            "vanished": self._vanish,
            "odd_status": self._confuse,
            "delete_lingers": lambda: self._linger(LINGER_SECONDS),
            "delete_stays": lambda: self._linger(None),
            "foreign_account": self.make_foreign,
        }[fault]()

    def _fill(self) -> None:
        """A quota of the namespace that is used up."""
        path = self._path("resourcequotas")
        self._admin.make(path, {"metadata": {"name": "full"}, "spec": {"hard": {"persistentvolumeclaims": "0"}}})
        until(lambda: self._admin.get(f"{path}/full")["status"].get("used"), "the quota", told=self._cluster.told)

    def _lose_image(self) -> None:
        self._image = "localhost/sweepstack/none:1"

    def _kill_readers(self) -> None:
        self._dies = True

    def _vanish(self) -> None:
        for native_id in self.rentals():
            self.remove_by_hand(native_id)

    def _confuse(self) -> None:
        for native_id in self.rentals():
            self.make_unreadable(native_id)

    def _linger(self, seconds: float | None) -> None:
        for native_id in self.rentals():
            self._hold(native_id, True)
        if seconds is not None:
            self._after(seconds, self._release)

    def _hold(self, native_id: str, held: bool) -> None:
        """Puts another program's finalizer on a claim, or takes it away, also while another one changes the claim."""
        path = self._path("persistentvolumeclaims", native_id)

        def tried() -> bool:
            if not (claim := self._admin.get(path)):
                return True
            metadata = claim["metadata"]
            kept = [one for one in metadata.get("finalizers") or () if one != LINGERS] + [LINGERS] * held
            what = {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}
            with contextlib.suppress(Refused):
                self._admin.patch(path, {"metadata": what})
                return True
            return False

        until(tried, "the finalizer", told=self._cluster.told)

    def _release(self) -> None:
        for native_id in self.rentals():
            self._hold(native_id, False)

    def _made(self, method: str, path: str) -> None:
        """Where readers die, a new one is ended at once."""
        kind = path.partition("?")[0].rpartition("/")[2]
        if method == "POST" and kind in ("persistentvolumeclaims", "pods") and "dryRun" not in path:
            self._provide()
        if method == "POST" and kind == "pods" and self._dies:
            self._end_pods()

    def _provide(self) -> None:
        """Each claim gets a volume of its own, as from a provisioner. They are looked for again with each pod: had one
        request for a volume failed, its claim would never get one, and its box would be waited for in vain."""
        with self._providing:
            for claim in self._claims():
                uid = claim["metadata"]["uid"]
                if uid not in self._provided:
                    self._volumes.append(self._cluster.volume(f"{self._namespace}-{dice.token_hex(4)}", claim=claim))
                    self._provided.add(uid)

    def _end_pods(self, native_id: str = "") -> None:
        for pod in self._admin.list(self._path("pods")):
            if pod["metadata"]["name"].startswith(native_id):
                self._admin.delete(self._path("pods", pod["metadata"]["name"]), gracePeriodSeconds=0)

    def slow_boot(self, seconds: float) -> None:
        """Its nodes are drained, as for an upgrade, and take no pod for so long."""
        for node in self._cluster.nodes.values():
            node.cordon()
        self._end_pods()
        self._after(seconds, self._uncordon)

    def _uncordon(self) -> None:
        for node in self._cluster.nodes.values():
            node.cordon(False)

    def _after(self, seconds: float, do: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, do)
        self._timer.daemon = True
        self._timer.start()

    def lose_answers(self) -> None:
        self._front.faults.add("lost_answer", self.where["create"][0], times=None)

    def fail_late(self) -> None:
        self._front.faults.add("error_after", self.where["create"][0], times=None, status=500)

    def make_unreadable(self, native_id: str) -> None:
        """A person changed the claim."""
        what = {"metadata": {"annotations": {f"{PREFIX}power": NONSENSE}}}
        self._admin.patch(self._path("persistentvolumeclaims", native_id), what)

    def make_foreign(self) -> None:
        """Another cluster is behind the same address, and has a namespace of the same name."""
        self._front.instead = self._other

    def cut_off(self) -> None:
        self._front.faults.add("lost_request", times=None, reset=True)

    def remove_by_hand(self, native_id: str) -> None:
        """A person says by hand what the policy wants to hear, takes all finalizers away, and deletes it."""
        path = self._path("persistentvolumeclaims", native_id)
        self._admin.patch(path, {"metadata": {"annotations": {f"{PREFIX}ending-at": "by hand"}}})
        self._admin.patch(path, {"metadata": {"finalizers": None}})
        self._admin.delete(path)
        self._end_pods(native_id)
        gone = (path, self._path("pods", f"{native_id}-reader"))
        until(lambda: not any(self._admin.get(one) for one in gone), "the end of the claim", told=self._cluster.told)

    def repair(self) -> None:
        self._front.faults.clear()
        self._front.instead = ""
        self._image, self._dies = IMAGE, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        self._set()
        self._uncordon()
        self._release()
        self._admin.delete(self._path("resourcequotas", "full"))
        for claim in self._claims():
            if (claim["metadata"].get("annotations") or {}).get(f"{PREFIX}power") == NONSENSE:
                what = {"metadata": {"annotations": {f"{PREFIX}power": None}}}
                self._admin.patch(self._path("persistentvolumeclaims", claim["metadata"]["name"]), what)

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        return created_at_once(self.at, request, count, machines=True)

    def odd_cards(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self.repair()
        for claim in self._claims():
            with contextlib.suppress(Refused):
                self.remove_by_hand(id_of(claim))
        self._front.close()
        for volume in self._volumes:
            self._admin.delete(f"/api/v1/persistentvolumes/{volume.name}")
            shutil.rmtree(volume.folder, ignore_errors=True)
        for name in (self._namespace, self._other):
            self._admin.delete(f"/api/v1/namespaces/{name}")
