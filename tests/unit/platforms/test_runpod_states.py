"""What RunPod says of a pod, word by word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.host.platform import Phase
from sweepstack.platforms.runpod.states import BILLS, PHASES, carries, record_of, volume_of

TAG = "sweepstack-a1b2c3-box-0-g1"
DIRECT = {"host": "203.0.113.7", "port": 10341, "username": "root", "command": "ssh root@203.0.113.7 -p 10341"}
PROXY = {"host": "ssh.runpod.io", "port": 22, "username": "k2zx-6441", "command": "ssh k2zx-6441@ssh.runpod.io"}


def pod(**changes: Any) -> dict[str, Any]:
    """A pod as REST v2 shows it while it runs."""
    return {
        "id": "k2zxp1vqr0abcd",
        "name": TAG,
        "status": "RUNNING",
        "actions": ["stop", "restart", "terminate"],
        "image": "ubuntu:22.04",
        "args": "",
        "disk": 20,
        "ports": ["22/tcp"],
        "env": {"SWEEPSTACK_TAG": TAG},
        "registry": None,
        "mounts": {"persistent": {"size": 50, "path": "/sweepstack"}},
        "gpu": {"id": "NVIDIA L4", "count": 2},
        "cloud": "SECURE",
        "dataCenterId": "US-TX-3",
        "cudaVersion": "12.8",
        "ssh": {"proxy": PROXY, "direct": DIRECT},
        "template": None,
        "cost": 0.86,
        "locked": False,
        "globalNetworking": {"enabled": False},
        "runtime": {"uptime": 12, "gpus": [{}, {}], "ports": []},
        "createdAt": "2026-11-21T10:00:00Z",
        "startedAt": "2026-11-21T10:00:30Z",
        **changes,
    }


# The specification's PodStatus, whole.
STATUSES = {
    "PROVISIONING": Phase.CREATING,
    "STARTING": Phase.CREATING,
    "RUNNING": Phase.RUNNING,
    "EXITED": Phase.STOPPED,
    "ERROR": Phase.FAILED,
    "TERMINATED": Phase.ENDING,
}


@pytest.mark.parametrize(("status", "phase"), STATUSES.items())
def test_every_state_has_its_phase(status: str, phase: Phase) -> None:
    assert record_of(pod(status=status), "me").phase is phase


def test_the_table_is_the_specifications_and_never_says_gone() -> None:
    assert set(PHASES) == set(STATUSES)
    assert Phase.GONE not in PHASES.values()
    assert {Phase.CREATING, Phase.RUNNING, Phase.STOPPED, Phase.FAILED, Phase.UNKNOWN} <= set(BILLS)


def test_a_pod_in_error_is_no_stopped_one() -> None:
    """The vendor calls it unrecoverable, and says of EXITED and TERMINATED alone that they cost nothing."""
    record = record_of(pod(status="ERROR"), "me")
    assert not record.phase.at_rest
    assert record.price_per_hour == pod()["cost"]
    assert "unrecoverable (ERROR): it may bill until it is ended" in record.note
    assert BILLS[record.phase] == "it may bill in full"


@pytest.mark.parametrize("status", ["MIGRATING", "running", "", None, 17, ["RUNNING"], {"x": 1}, "DEAD"])
def test_a_state_that_is_not_known_is_reported_and_never_gone(status: Any) -> None:
    record = record_of(pod(status=status), "me")
    assert record.phase is Phase.UNKNOWN
    assert str(status) in record.note


def test_running_without_an_address_is_not_ready() -> None:
    record = record_of(pod(ssh={"proxy": PROXY, "direct": None}, runtime=None), "me")
    assert (record.phase, record.gpu_count) == (Phase.CREATING, None)
    assert record.endpoint is not None
    assert record.endpoint.proxied


def test_a_pod_that_never_offers_ssh_is_not_waited_for() -> None:
    assert record_of(pod(ports=["8888/http"], ssh={"proxy": None, "direct": None}), "me").phase is Phase.RUNNING


def test_a_running_pod_as_a_record() -> None:
    record = record_of(pod(), "me")
    assert (record.native_id, record.tag, record.account) == ("k2zxp1vqr0abcd", TAG, "me")
    assert (record.price_per_hour, record.gpu_count, record.region, record.offer) == (0.86, 2, "US-TX-3", "NVIDIA L4")
    assert record.created_at == datetime(2026, 11, 21, 10, tzinfo=UTC)
    assert record.endpoint == SshEndpoint("203.0.113.7", 10341, "root", start="2026-11-21T10:00:30Z")
    assert record.note == ""


@pytest.mark.parametrize("cost", [0, 0.0, -1, None, "0.5", True, float("nan"), float("inf")])
def test_a_price_that_is_none_is_none(cost: Any) -> None:
    assert record_of(pod(cost=cost), "me").price_per_hour is None


def test_a_stopped_pod_keeps_the_price_of_a_running_one() -> None:
    env = {"SWEEPSTACK_TAG": TAG, "SWEEPSTACK_PRICE_PER_HOUR": "0.430000"}
    assert record_of(pod(status="EXITED", cost=0.0, env=env), "me").price_per_hour == 0.43
    assert record_of(pod(status="EXITED", cost=0.72, env=env), "me").price_per_hour == 0.72
    for odd in ("", "free", "nan", "-1"):
        seen = record_of(pod(status="EXITED", cost=0.0, env={**env, "SWEEPSTACK_PRICE_PER_HOUR": odd}), "me")
        assert seen.price_per_hour is None


def test_a_stopped_pod_says_what_its_volume_disk_costs() -> None:
    assert record_of(pod(status="EXITED"), "me").stopped_per_hour == pytest.approx(50 * 0.20 / 730)
    assert (
        record_of(pod(status="EXITED", mounts={"network": [{"volumeId": "v", "path": "/x"}]}), "me").stopped_per_hour
        == 0
    )
    for unreadable in (None, {"persistent": {"size": "50"}}, {"persistent": 7}):
        assert record_of(pod(status="EXITED", mounts=unreadable), "me").stopped_per_hour is None


def test_a_start_without_its_cards_is_seen() -> None:
    record = record_of(pod(runtime={"uptime": 3, "gpus": []}), "me")
    assert record.gpu_count == 0
    assert "no GPU" in record.note


@pytest.mark.parametrize(
    "broken",
    [
        {"host": "", "port": 22, "username": "root"},
        {"host": "h", "port": 0, "username": "root"},
        {"host": "h", "port": "22", "username": "root"},
        {"host": "h", "port": True, "username": "root"},
        {"host": 5, "port": 22},
        {},
        "h:22",
        None,
    ],
)
def test_an_address_that_is_none_is_none(broken: Any) -> None:
    record = record_of(pod(ssh={"proxy": None, "direct": broken}), "me")
    assert (record.phase, record.endpoint) == (Phase.CREATING, None)


@pytest.mark.parametrize("missing", ["status", "env", "name", "ssh", "cost", "createdAt", "gpu", "runtime", "mounts"])
def test_a_pod_with_holes_is_still_a_record(missing: str) -> None:
    holed = pod()
    del holed[missing]
    record = record_of(holed, "me")
    assert record.phase is not Phase.GONE
    assert record.outputs()["native_id"] == "k2zxp1vqr0abcd"
    assert carries(holed, TAG)


def test_a_name_alone_is_nobodys() -> None:
    assert not carries(pod(env={}), TAG)
    assert not carries(pod(env={"SWEEPSTACK_TAG": f"{TAG}0"}), TAG)
    assert not carries(pod(name=f"{TAG}0", env={}), TAG)


def test_a_pod_that_was_renamed_is_still_ours() -> None:
    renamed = pod(name="my pod")
    assert carries(renamed, TAG)
    record = record_of(renamed, "me")
    assert record.tag == TAG
    assert "my pod" in record.note


def test_a_name_whose_marker_cannot_be_read_is_unknown_and_not_free() -> None:
    hidden = pod(env=None)
    assert carries(hidden, TAG)
    assert record_of(hidden, "me").phase is Phase.UNKNOWN


def test_what_we_ended_is_ending_whatever_it_says() -> None:
    assert record_of(pod(), "me", ending=True).phase is Phase.ENDING


def test_network_volumes_are_read_from_the_mounts() -> None:
    mounts = {"network": [{"volumeId": "agv6w2qcg7", "path": "/sweepstack/mnt/durable"}]}
    assert volume_of(pod(mounts=mounts)) == {"/sweepstack/mnt/durable": "agv6w2qcg7"}
    assert volume_of(pod()) == {}
    assert volume_of(pod(mounts={"network": "?"})) == {}
