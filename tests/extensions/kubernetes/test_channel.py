"""The channel to a box in a pod: which pod is asked, and what is told where none can be."""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from sweepstack.extensions.kubernetes import channel as pod_channel
from sweepstack.extensions.kubernetes import objects, pod_template, reader
from sweepstack.extensions.kubernetes.address import Address
from sweepstack.extensions.kubernetes.api import BOX, Cluster, Exists, Object, marks_of
from sweepstack.extensions.kubernetes.channel import PodChannel
from sweepstack.extensions.kubernetes.objects import ROLE
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.extensions.kubernetes.pod_template import READER, WORKER
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, RequestRefused, Unreachable
from sweepstack.onbox.host.platform import Wait
from tests.extensions.kubernetes.exec_server import TOKEN, ExecServer, until

NATIVE = "k8s-0123456789abcdef"
IMAGE = "an/image:1"


class Pods:
    """A cluster in memory: as much of `Cluster` as the reader asks. `starts`: what a new pod becomes."""

    kubectl = "kubectl --context here -n ann"

    def __init__(self, host: str = "") -> None:
        self.address = Address("ann", "here")
        self.namespace = "ann"
        self.host = host
        self.pods: dict[str, Object] = {}
        self.pvc: Object | None = {
            "metadata": {
                "name": NATIVE,
                "annotations": objects.mark(pods=f'{{"image": "{IMAGE}"}}')["metadata"]["annotations"],
            },
            "spec": {},
            "status": {"phase": "Bound"},
        }
        self.made: list[Object] = []
        self.ended: list[str] = []
        self.refusal: Exception | None = None
        self.starts: Callable[[Object], None] = runs
        self.told: list[Object] = []

    def get(self, kind: str, name: str) -> Object | None:
        return copy.deepcopy(self.pvc) if kind == "pvc" and name == NATIVE else None

    def list(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        assert labels == f"{BOX}={NATIVE}"
        return [copy.deepcopy(one) for one in self.pods.values()] if kind == "pod" else []

    def create(self, kind: str, body: Mapping[str, Any]) -> Object:
        assert kind == "pod"
        if self.refusal is not None:
            raise self.refusal
        name = body["metadata"]["name"]
        if name in self.pods:
            raise Exists(f'pods "{name}" already exists')
        pod = copy.deepcopy(dict(body))
        pod["metadata"]["uid"] = f"uid-{len(self.made)}"
        self.made.append(pod)
        self.pods[name] = pod
        self.starts(pod)
        return pod

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> None:
        assert (kind, name) == ("pvc", NATIVE)
        assert self.pvc is not None
        self.pvc["metadata"]["annotations"].update(body["metadata"]["annotations"])

    def delete(self, kind: str, one: Object, *, grace: int | None = None) -> None:
        name, uid = one["metadata"]["name"], one["metadata"]["uid"]
        if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
            del self.pods[name]
            self.ended.append(uid)

    def events(self, name: str) -> list[Object]:
        return self.told

    def exec_facts(self, pod: str) -> Object:
        headers = {"authorization": TOKEN}
        return {"host": self.host, "path": f"/api/v1/namespaces/ann/pods/{pod}", "headers": headers, "verify": True}

    def __str__(self) -> str:
        return "the namespace ann of the cluster here"

    def add(self, name: str, role: str, node: str = "n1", *, state: str = "Running", deleted: bool = False) -> Object:
        metadata: Object = {"name": name, "uid": f"uid-{name}", "labels": {BOX: NATIVE, ROLE: role}}
        if deleted:
            metadata["deletionTimestamp"] = "2026-11-29T03:00:00Z"
        pod: Object = {"metadata": metadata, "spec": {"nodeName": node} if node else {}}
        if state == "Running":
            runs(pod)
        else:
            pod["status"] = {"phase": state, "startTime": "2026-11-29T03:00:00Z"}
        self.pods[name] = pod
        return pod


def runs(pod: Object) -> None:
    pod["spec"].setdefault("nodeName", "n1")
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"state": {"running": {}}}],
    }


def begins(pod: Object) -> None:
    pod["spec"]["nodeName"], pod["status"] = "n1", {"phase": "Pending"}


def waits(pod: Object) -> None:
    pod["status"] = {"phase": "Pending"}


@pytest.fixture
def cluster() -> Pods:
    return Pods()


def pod_for(cluster: Pods, seconds: float = 5.0) -> reader.Found:
    return reader.pod_for(cast(Cluster, cluster), NATIVE, Wait(seconds))


# -- which pod is asked


def test_a_worker_that_runs_is_asked(cluster: Pods) -> None:
    cluster.add("r", READER)
    cluster.add("w", WORKER)
    cluster.add("ending", WORKER, deleted=True)
    cluster.add("begins", WORKER, state="Pending")
    assert (pod_for(cluster).name, cluster.made) == ("w", [])


def test_one_whose_node_does_not_answer_is_not_asked(cluster: Pods) -> None:
    pod = cluster.add("w", WORKER)
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert pod_for(cluster).reader


def test_a_reader_is_made_once_and_bounded(cluster: Pods) -> None:
    first, second = pod_for(cluster), pod_for(cluster)
    assert first == second
    (made,) = cluster.made
    spec = made["spec"]
    assert (made["metadata"]["name"], spec["containers"][0]["image"]) == (f"{NATIVE}-reader", IMAGE)
    assert spec["activeDeadlineSeconds"] == reader.LONGEST_SECONDS
    assert made["metadata"]["labels"][ROLE] == READER


def test_a_reader_that_ended_is_made_again(cluster: Pods) -> None:
    cluster.add(f"{NATIVE}-reader", READER, state="Succeeded")
    assert pod_for(cluster).uid == "uid-0"
    assert cluster.ended == [f"uid-{NATIVE}-reader"]


def test_a_reader_whose_node_is_silent_is_left_where_another_node_mounts_the_volume(cluster: Pods) -> None:
    """Its object may never go by itself: `pull` and `verify` would wait for ever."""
    own = cluster.add(f"{NATIVE}-reader", READER, deleted=True)
    own["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    own["spec"] |= {"restartPolicy": "Never", "containers": [{"name": "worker"}]}
    own["status"]["containerStatuses"][0]["name"] = "worker"
    with pytest.raises(
        Unreachable,
        match=r"once you have seen that it is off: `kubectl --context here -n ann taint nodes n1 .*out-of-service",
    ):
        pod_for(cluster, 0.1)
    assert cluster.pvc is not None
    cluster.pvc["spec"]["accessModes"] = [objects.MANY]
    now = datetime.now(UTC)
    own["metadata"]["deletionTimestamp"] = now.isoformat()
    with pytest.raises(Unreachable, match="is just ending"):
        pod_for(cluster, 0.1)
    assert cluster.ended == []
    own["metadata"]["deletionTimestamp"] = (now - timedelta(seconds=2 * ends.LATE_SECONDS)).isoformat()
    assert pod_for(cluster).uid == "uid-0"
    assert cluster.ended == [f"uid-{NATIVE}-reader"]


def test_another_command_was_first(cluster: Pods) -> None:
    cluster.starts = lambda pod: None

    def create(kind: str, body: Mapping[str, Any]) -> Object:
        cluster.add(f"{NATIVE}-reader", READER)
        raise Exists("already exists")

    cluster.create = create  # type: ignore[method-assign]
    assert pod_for(cluster).uid == f"uid-{NATIVE}-reader"


def test_a_reader_of_another_image_that_does_not_begin_is_replaced(cluster: Pods) -> None:
    cluster.starts = waits
    with pytest.raises(Unreachable):
        pod_for(cluster, 0.1)
    cluster.starts = runs
    assert cluster.pvc is not None
    cluster.pvc["metadata"]["annotations"].update(objects.mark(pods='{"image": "other"}')["metadata"]["annotations"])
    assert pod_for(cluster).uid == "uid-1"
    assert cluster.made[1]["spec"]["containers"][0]["image"] == "other"


def test_a_reader_goes_where_a_worker_wants_the_volume(cluster: Pods) -> None:
    before = pod_for(cluster)
    cluster.add("w", WORKER, "n2", state="Pending")
    cluster.starts = waits
    assert reader.better(cast(Cluster, cluster), before, NATIVE)
    assert cluster.ended == [before.uid]
    with pytest.raises(Unreachable):
        pod_for(cluster, 0.1)
    (term,) = cluster.made[1]["spec"]["affinity"]["nodeAffinity"][pod_template._REQUIRED]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]


def test_a_lost_node_is_not_where_a_reader_goes(cluster: Pods) -> None:
    before = pod_for(cluster)
    cluster.add("lost", WORKER, "n2")["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    cluster.add("not-begun", WORKER, "n2", state="Pending")["status"].pop("startTime")
    assert not reader.better(cast(Cluster, cluster), before, NATIVE)
    assert pod_for(cluster) == before


def test_a_reader_is_left_once_a_worker_runs(cluster: Pods) -> None:
    before = pod_for(cluster)
    assert not reader.better(cast(Cluster, cluster), before, NATIVE)
    cluster.add("w", WORKER, "n1")
    assert reader.better(cast(Cluster, cluster), before, NATIVE)
    assert cluster.ended == []  # others may use it still


@pytest.fixture
def first(cluster: Pods, monkeypatch: pytest.MonkeyPatch) -> Callable[[], reader.Found]:
    """Asks for the pod of a box whose first worker was just asked for."""
    monkeypatch.setattr(reader, "FIRST", {NATIVE})
    return lambda: reader.pod_for(cast(Cluster, cluster), NATIVE, Wait(5.0), soon=True)


def test_a_first_worker_that_begins_is_taken_and_no_reader_is_made(
    cluster: Pods, first: Callable[[], reader.Found]
) -> None:
    cluster.add("w", WORKER, "", state="Pending")["status"] = {"phase": "Pending"}
    threading.Timer(0.3, lambda: begins(cluster.pods["w"])).start()
    found = first()
    assert (found.name, found.reader, found.begins, cluster.made) == ("w", False, True, [])


def test_a_first_worker_that_gets_no_node_keeps_no_reader_from_coming(
    cluster: Pods, first: Callable[[], reader.Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = cluster.add("w", WORKER, "", state="Pending")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: 2 full."}
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    monkeypatch.setattr(reader, "FIRST_SECONDS", 3600.0)
    assert first().reader, "the scheduler had said so"
    cluster.pods.clear()
    monkeypatch.setattr(reader, "FIRST_SECONDS", 0.2)
    assert first().reader, "nor one whose pod does not come"


# -- where none can be


def test_why_it_does_not_begin_is_told(cluster: Pods) -> None:
    def unschedulable(pod: Object) -> None:
        waits(pod)
        message = "0/2 nodes are available: 2 Insufficient cpu."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"]["conditions"] = [condition]

    cluster.starts = unschedulable
    with pytest.raises(Unreachable, match="too little cpu"):
        pod_for(cluster, 1.2)


def test_refused_pod_is_told(cluster: Pods) -> None:
    cluster.refusal = RequestRefused('pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0')
    with pytest.raises(Unreachable, match="quota is used up"):
        pod_for(cluster)


def test_missing_right_to_make_a_reader_is_named(cluster: Pods) -> None:
    said = 'pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""'
    cluster.refusal = RequestRefused(said)
    with pytest.raises(NotAuthorized, match="verb create of pods in the namespace ann"):
        pod_for(cluster)


def test_ending_box_is_read_only_by_what_runs(cluster: Pods) -> None:
    assert cluster.pvc is not None
    cluster.pvc["metadata"]["annotations"].update(objects.mark(ending_at="now")["metadata"]["annotations"])
    with pytest.raises(Unreachable, match="being destroyed"):
        pod_for(cluster)
    cluster.add("w", WORKER, deleted=True)
    assert pod_for(cluster).name == "w"
    assert cluster.made == []


def test_box_without_a_claim_is_unknown(cluster: Pods) -> None:
    cluster.pvc = None
    with pytest.raises(Unreachable, match="no claim"):
        pod_for(cluster)


def test_loop_of_a_reader_ends_when_it_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = reader._LOOP.format(looks=2, seconds=1)
    in_a_pod = ["unshare", "--fork", "--pid", "--mount-proc", "--map-root-user", "--user"]
    try:
        subprocess.run([*in_a_pod, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespaces of processes here")
    begun = time.monotonic()
    subprocess.run([*in_a_pod, "sh", "-c", loop], check=True, timeout=20)
    assert 1.5 < time.monotonic() - begun < 10
    used = subprocess.Popen([*in_a_pod, "sh", "-c", f"sleep 5 & {loop}"])
    time.sleep(4)
    assert used.poll() is None
    assert used.wait(20) == 0


# -- the whole way, to commands of this machine


@pytest.fixture
def server() -> Iterator[ExecServer]:
    made = ExecServer()
    yield made
    made.close()
    assert made.faults == []


@pytest.fixture
def channel(server: ExecServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodChannel]:
    monkeypatch.setattr(pod_channel, "ROOT", str(tmp_path / "box"))
    monkeypatch.setattr(pod_channel, "HOME", str(tmp_path / "home"))
    monkeypatch.setattr(pod_channel, "_SHARED", {})
    made = PodChannel(cast(Cluster, Pods(server.host)), NATIVE, "account", wait=Wait(10))
    yield made
    made.close()


def test_box_is_prepared_and_read(channel: PodChannel, server: ExecServer, tmp_path: Path) -> None:
    channel.prepare()
    assert sorted(one.name for one in (tmp_path / "box").iterdir()) == ["data", "mnt", "scratch"]
    assert objects.READY in marks_of(channel._cluster.get("pvc", NATIVE) or {}), "it is on record"
    channel.write("data/file", b"content")
    channel.append_locked("mnt/durable/lines", b"line\n", "mnt/durable/lock")
    assert (channel.read("data/file"), channel.read("mnt/durable/lines")) == (b"content", b"line\n")
    assert channel.run(["cat"], timeout=10, stdin=b"given").stdout == b"given"
    assert len(server.asked) == 1
    assert server.asked[0]["container"] == ["worker"]


def test_a_reader_is_asked_before_its_node_says_that_it_runs(channel: PodChannel, server: ExecServer) -> None:
    """That takes the node up to a second."""
    pods = cast(Pods, channel._cluster)
    pods.starts, server.late = begins, 2
    channel.prepare()
    assert len(server.asked) == 3
    channel.write("data/file", b"content")
    assert (channel.read("data/file"), len(server.asked)) == (b"content", 3)
    channel.close()
    with pytest.raises(Unreachable, match="can't be read now"):  # a later command believes the node alone
        reader.pod_for(cast(Cluster, pods), NATIVE, Wait(0.1))


def test_a_reader_that_begins_late_is_waited_for(
    channel: PodChannel, server: ExecServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_channel, "PATIENCE_SECONDS", 0.2)
    pods = cast(Pods, channel._cluster)
    pods.starts, server.late = begins, 10**6

    def runs_now() -> None:
        server.late = 0
        runs(next(iter(pods.pods.values())))

    late = threading.Timer(2.0, runs_now)
    late.start()
    channel.prepare()
    late.join()
    assert channel.run(["echo", "here"], timeout=10).stdout == b"here\n"


def test_a_large_file_goes_on_after_a_cut(channel: PodChannel, server: ExecServer, tmp_path: Path) -> None:
    channel.prepare()
    data = os.urandom(20 << 20)
    (tmp_path / "source").write_bytes(data)
    channel.put_tree([("big", tmp_path / "source", 0o644)], "data/tree")
    channel.close()
    server.lose_after = 8 << 20
    with pytest.raises(Unreachable, match=r"pod .*-reader.* can't be reached: the connection to the pod broke"):
        channel.fetch("data/tree/big", tmp_path / "copy")
    assert 0 < (tmp_path / "copy").stat().st_size < len(data)
    server.lose_after = None
    said: list[int] = []
    channel.fetch("data/tree/big", tmp_path / "copy", said.append)
    assert (tmp_path / "copy").read_bytes() == data
    assert said[0] >= 1 << 20  # what was there already


def test_a_cut_between_calls_is_not_noticed(channel: PodChannel, server: ExecServer) -> None:
    channel.prepare()
    channel.write("data/file", b"x")
    server.cut()
    assert channel.read("data/file") == b"x"
    server.cut()
    channel.append_locked("data/lines", b"line\n", "data/lock")
    assert channel.read("data/lines") == b"line\n"


def test_workers_that_have_written_their_end_are_told_to_those_that_bring_more(
    channel: PodChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster shows their pods as running for a moment yet, and they read no line that comes now."""
    channel.prepare()
    given: dict[str, Any] = {}
    monkeypatch.setattr(pod_channel.workers, "top_up", lambda *_, **more: given.update(more) or "")
    channel.top_up("runner/runner.py", {}, 1)
    assert given["stopped"]() == {}, "there is no journal yet"
    ended, goes_on = '"event":"runner-stopped","worker":"u.0","why":"drained"', '"event":"cell-started","worker":"v.0"'
    channel.write(box_layout.JOURNAL, f"{{{ended}}}\n{{{goes_on}}}\n".encode())
    assert given["stopped"]() == {"u.0": "drained"}


def test_a_missing_right_is_named(channel: PodChannel, server: ExecServer) -> None:
    server.refuses = (403, 'pods "p" is forbidden: User "ann" cannot get resource "pods/exec" in API group ""')
    with pytest.raises(NotAuthorized, match=r"cannot get resource \"pods/exec\".*verbs get and create of pods/exec"):
        channel.read("data/file")


def test_an_image_without_python_is_told(channel: PodChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    start = pod_channel.PodWay.start
    no_python = lambda self, remote, *more, **words: start(self, "exec no-python3", *more, **words)  # noqa: E731
    monkeypatch.setattr(pod_channel.PodWay, "start", no_python)
    with pytest.raises(PlatformError, match=r"can't run python3: .*Python 3.8 or newer"):
        channel.read("data/file")


def test_runner_lock_is_the_clusters_word(channel: PodChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    channel.prepare()
    monkeypatch.setattr(pod_channel.workers, "at_work", lambda *_: True)
    assert channel.lock_held(box_layout.RUNNER_LOCK)
    assert not channel.lock_held("data/other")


def test_closed_box_runs_nothing(channel: PodChannel) -> None:
    channel.prepare()
    channel._closed = lambda: "is stopped"
    channel.write("data/file", b"x")
    for ask in (
        lambda: channel.run(["true"], timeout=5),
        lambda: channel.attach(["true"]),
        lambda: channel.reach(1, 2),
    ):
        with pytest.raises(PlatformError, match="is stopped"):
            ask()


SCRIPT = """
import sys
from pathlib import Path
import tests.extensions.kubernetes.test_channel as t
t.pod_channel.ROOT, t.pod_channel.HOME = sys.argv[1] + "/box", sys.argv[1] + "/home"
channel = t.PodChannel(t.Pods(sys.argv[2]), t.NATIVE, "account")
channel.prepare()
"""


def apart(server: ExecServer, folder: Path, text: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", f"{SCRIPT}{text}", str(folder), server.host]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


def test_a_persons_command_has_its_streams_and_code(server: ExecServer, tmp_path: Path) -> None:
    command = "cat; pwd; echo error >&2; exit 5"
    process = apart(server, tmp_path, f"sys.exit(channel.attach(['sh', '-c', {command!r}], cwd='data'))")
    out, err = process.communicate(b"typed\n", timeout=60)
    assert (process.returncode, out, err) == (5, f"typed\n{tmp_path}/box/data\n".encode(), b"error\n")


def test_a_persons_command_ends_with_the_connection(server: ExecServer, tmp_path: Path) -> None:
    process = apart(server, tmp_path, "sys.exit(channel.attach(['sh', '-c', 'echo $$; exec sleep 1000']))")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    server.cut()
    _, err = process.communicate(timeout=30)
    assert b"the connection to the pod broke" in err
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_port_is_forwarded(server: ExecServer, channel: PodChannel, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        local = probe.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        threading.Thread(target=_answers, args=(door,), daemon=True).start()
        process = apart(
            server, tmp_path, f"print(channel.reach({port}, {local}, lambda text: print(text, flush=True)))"
        )
        assert process.stdout is not None
        assert f"port {port} of ".encode() in process.stdout.readline()
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=20) as answer:
                assert answer.read() == b"x" * 300_000
        door.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match=r"."):  # noqa: SIM117 - both may raise
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=20) as answer:
            answer.read()
    assert f"nothing answers at port {port} of the pod".encode() in process.stdout.readline()
    process.send_signal(2)
    out, _ = process.communicate(timeout=20)
    assert b"until now" in out


def _answers(door: socket.socket) -> None:
    while True:
        try:
            connection, _ = door.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 300_000)
