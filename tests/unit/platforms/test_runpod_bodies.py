"""What is sent to RunPod, against the field lists of its specification (`/work`'s facts, section 2)."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest

from sweepstack.onbox.common.errors import RequestRefused
from sweepstack.onbox.host.offers import Constraints, Offer
from sweepstack.onbox.host.platform import BoxRequest
from sweepstack.platforms.runpod import create, offers

# CreatePodRequest of REST v2; every other field is answered by 422.
CREATE_FIELDS = {
    "name", "image", "gpu", "cpu", "cloud", "dataCenterIds", "disk", "mounts", "ports", "env", "args", "registry",
    "templateId", "startSsh", "startJupyter", "globalNetworking",
}  # fmt: skip
GPU_FIELDS = {"id", "count", "allowedCudaVersions", "minCudaVersion", "minRamPerGpu", "minVcpuCountPerGpu"}
L4 = Offer("NVIDIA L4", "L4", 1, 0.43, "US-TX-3")
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cards": {"resources": {"gpu": {"name": ["L4"], "count": 4, "cuda": "12.8+"}, "disk": "120GB", "cpu": 16}},
    "memory": {"resources": {"gpu": {"name": ["L4"], "count": 3}, "memory": "100GB+"}},
    "exact cuda": {"resources": {"gpu": {"count": 1, "cuda": "12.4"}}},
    "small": {"resources": {"disk": "1GB"}, "env": {"HF_HOME": "/x", "PUBLIC_KEY": "other", "SWEEPSTACK_TAG": "no"}},
    "volume": {"mounts": {"mnt/durable": "me.vol1"}, "resources": {"disk": "100GB"}},
}


def request(**changes: Any) -> BoxRequest:
    return BoxRequest(**{"tag": "sweepstack-a-box-g1", "name": "box", "public_key": "ssh-ed25519 AAAA me", **changes})


def body(name: str, centers: list[str] | None = None) -> dict[str, Any]:
    return create.create_pod(request(**REQUESTS[name]), L4, L4.key, centers or [], "vol1" if name == "volume" else "")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_create_has_known_fields_and_all_that_bite_when_they_are_missing(name: str) -> None:
    sent = body(name, ["US-TX-3"])
    assert set(sent) <= CREATE_FIELDS
    assert set(sent["gpu"]) <= GPU_FIELDS
    assert {"name", "image", "gpu", "disk", "mounts", "ports", "env"} <= set(sent)
    assert "cpu" not in sent
    assert isinstance(sent["gpu"]["count"], int)
    assert sent["gpu"]["count"] >= 1
    assert isinstance(sent["disk"], int)
    assert sent["disk"] >= 1
    assert sent["ports"] == ["22/tcp"]
    assert len(sent["mounts"]) == 1
    assert not {"allowedCudaVersions", "minCudaVersion"} <= set(sent["gpu"])
    assert all(isinstance(value, str) for value in sent["env"].values())
    assert (sent["env"]["SWEEPSTACK_TAG"], sent["name"]) == ("sweepstack-a-box-g1",) * 2
    assert sent["env"]["PUBLIC_KEY"] == "ssh-ed25519 AAAA me"


def test_without_a_volume_the_root_is_a_volume_disk() -> None:
    sent = body("cards")
    assert sent["mounts"] == {"persistent": {"size": 120, "path": "/sweepstack"}}
    assert sent["disk"] == offers.IMAGE_DISK_GB
    assert body("small")["mounts"]["persistent"]["size"] == 10
    assert "dataCenterIds" not in sent


def test_with_a_volume_the_root_is_the_container_disk() -> None:
    sent = body("volume", ["EU-RO-1"])
    assert sent["mounts"] == {"network": [{"volumeId": "vol1", "path": "/sweepstack/mnt/durable"}]}
    assert (sent["disk"], sent["cloud"], sent["dataCenterIds"]) == (100, "SECURE", ["EU-RO-1"])


def test_cards_cuda_and_cores_are_asked_for() -> None:
    assert body("cards")["gpu"] == {"id": "NVIDIA L4", "count": 4, "minCudaVersion": "12.8", "minVcpuCountPerGpu": 4}
    assert body("memory")["gpu"] == {"id": "NVIDIA L4", "count": 3, "minRamPerGpu": 34}
    assert body("exact cuda")["gpu"] == {"id": "NVIDIA L4", "count": 1, "allowedCudaVersions": ["12.4"]}


def test_two_mounts_are_refused() -> None:
    with pytest.raises(RequestRefused, match="one volume"):
        create.create_pod(request(mounts={"mnt/a": "me.v1", "mnt/b": "me.v2"}), L4, L4.key, [], "v1")


def test_stock_is_asked_for_together_with_the_product() -> None:
    for wanted in (Constraints(), Constraints(gpu_count=8, cuda="12.8"), Constraints(cuda="12.8", cuda_at_least=False)):
        params = offers.catalog_params(wanted)
        assert set(params) <= {"include", "product", "count", "cloud", "cudaVersions", "minCudaVersion"}
        assert (params["include"], params["product"]) == ("AVAILABILITY", "POD")
    assert offers.catalog_params(Constraints(cuda="12.8", cuda_at_least=False))["cudaVersions"] == "12.8"


def test_a_volume_has_name_size_and_place() -> None:
    sent = offers.create_volume("tag", 50, "US-KS-2", "STANDARD")
    assert sent == {"name": "tag", "size": 50, "dataCenter": "US-KS-2", "type": "STANDARD"}
    assert offers.create_volume("tag", 1, "US-KS-2", "STANDARD")["size"] == 10
    assert offers.grow_volume(60) == {"size": 60}
    for refused in (lambda: offers.create_volume("tag", 4097, "X", "STANDARD"), lambda: offers.grow_volume(5000)):
        with pytest.raises(RequestRefused, match="4096"):
            refused()


def test_the_start_command_is_one_shell_script_and_holds_no_secret() -> None:
    words = shlex.split(body("plain")["args"])
    assert words[:2] == ["sh", "-c"]
    assert len(words) == 3
    assert "ssh-ed25519" not in words[2]
    for folder in ("/sweepstack/data", "/sweepstack/scratch", "/sweepstack/mnt/durable"):
        assert folder in words[2]
    assert subprocess.run(["sh", "-n", "-c", words[2]], check=False).returncode == 0


def test_with_a_lease_the_start_command_holds_it_from_the_first_second() -> None:
    plain, held = body("plain"), create.create_pod(request(lease_seconds=7200.0), L4, L4.key, [])
    assert held["env"].keys() - plain["env"].keys() == {"SWEEPSTACK_LEASE"}
    compile(held["env"]["SWEEPSTACK_LEASE"], "timer", "exec")
    assert "/v2/pods/@here@/action" in held["env"]["SWEEPSTACK_LEASE"]
    shell, flag, script = shlex.split(held["args"])
    assert (shell, flag) == ("sh", "-c")
    assert script.startswith("while :; do command -v python3")
    assert script.endswith(create.START)
    assert subprocess.run(["sh", "-n", "-c", script]).returncode == 0
