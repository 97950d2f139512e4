"""What several nodes must have in common, and what a command has to look like to run on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.nodes.onbox import facts
from sweepstack.extensions.nodes.onbox.command import on_each_node, probe_command, refusal
from sweepstack.extensions.nodes.onbox.launch import settings
from sweepstack.extensions.nodes.onbox.network import Interface, hole, named, sizes
from sweepstack.extensions.nodes.onbox.peers import AllocatedPeer, Peer, peer_of
from sweepstack.extensions.nodes.onbox.preflight import differences, restores, wrong_interfaces
from sweepstack.onbox.common.nodes import Allocation

NODE: dict[str, Any] = {
    "versions": {"python": "3.11.7", "torch": "2.8.0", "nccl": "2.27.3"},
    "gpus": ["NVIDIA H100 80GB HBM3"] * 8,
    "fabric": "",
    "infiniband": ["mlx5_0"],
    "time": 0.0,
    "code": "",
}
DRIVER = """
==============NVSMI LOG==============

Driver Version                            : 550.90.07
CUDA Version                              : 12.4

Attached GPUs                             : 8
"""
FABRIC = """GPU 00000000:04:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU Fabric GUID                       : 0x1234
    Performance State                     : P0
    Fabric
        State                             : {0}
        Status                            : {1}
        CliqueId                          : 0
        Health
            Bandwidth                     : N/A
    Processes                             : None

"""


def found(**second: Any) -> list[str]:
    return list(differences(["one", "ann@two"], [NODE, {**NODE, **second}]))


def test_equal_nodes_have_nothing_against_them() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"versions": {**NODE["versions"], "torch": "2.7.1"}}, "ann@two has torch 2.7.1, and one has 2.8.0"),
        ({"versions": {**NODE["versions"], "nccl": "2.26.2"}}, "ann@two has nccl 2.26.2, and one has 2.27.3"),
        (
            {"versions": {"python": "3.11.7", "executable": "/opt/env/bin/python"}},
            "ann@two: torch is not installed in the Python that runs the cells (/opt/env/bin/python)",
        ),
        ({"gpus": NODE["gpus"][:7]}, "ann@two has 7× NVIDIA H100 80GB HBM3, and one has 8×"),
        ({"gpus": []}, "ann@two has no GPU"),
        ({"time": -11.0}, "ann@two: its clock is 11 s behind: `timedatectl set-ntp true`"),
        ({"code": "train.py on this box is not what was shipped"}, "ann@two: train.py on this box is not"),
    ],
)
def test_what_differs_is_told_with_its_node_and_its_fix(second: Mapping[str, Any], words: str) -> None:
    assert words in "; ".join(found(**second))


UP, OLD = ("Completed", "Success"), ("N/A", "N/A")


@pytest.mark.parametrize(
    ("cards", "service", "version", "words"),
    [
        ([UP, UP], "inactive", "550.90.07", ""),
        ([("In Progress", "N/A"), UP], "active", "550.90.07", "nvidia-smi says of its fabric: GPU 0: In Progress"),
        (
            [UP, ("In Progress", "N/A"), ("Completed", "Failure")],
            "active",
            "550.90.07",
            "nvidia-smi says of its fabric: GPU 1: In Progress, GPU 2: Completed, but Failure",
        ),
        ([OLD, OLD], "inactive", "550.90.07", "nvidia-fabricmanager is inactive"),
        ([OLD, OLD], "failed", "", "nvidia-fabricmanager is failed"),
        ([OLD, OLD], "active", "550.90.07", ""),
        (
            [UP, UP],
            "active",
            "550.54.15",
            "nvidia-fabricmanager is 550.54.15, and the driver 550.90.07: install the one of the driver's version",
        ),
    ],
)
def test_mn1_a_fabric_that_is_not_up_is_found_on_each_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cards: list[tuple[str, str]],
    service: str,
    version: str,
    words: str,
) -> None:
    tools = {
        "nvidia-smi": f"cat <<'X'\n{DRIVER}{''.join(FABRIC.format(*card) for card in cards)}X",
        "systemctl": f"echo {service}",
        "nv-fabricmanager": f"echo 'Fabric Manager version is : {version}'",
    }
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "switch").touch()
    monkeypatch.setattr(facts, "SWITCHES", (tmp_path / "switch",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = facts.fabric(NODE["gpus"])
    assert said == words
    told = found(fabric=said)
    assert len(told) == bool(words)
    assert all("ann@two" in one and "systemctl restart nvidia-fabricmanager" in one for one in told)


def test_mn2_the_ranks_are_told_the_interface_and_whether_there_is_infiniband() -> None:
    ways = [Interface("eth0", "10.0.0.1", 9000), Interface("ens3", "10.0.0.2", 9000)]
    nodes = [{**NODE, "interface": list(way)} for way in ways]
    assert [settings(nodes, number)["NCCL_SOCKET_IFNAME"] for number in (0, 1)] == ["=eth0", "=ens3"]
    assert "NCCL_IB_DISABLE" not in settings(nodes, 0)
    nodes[1]["infiniband"] = []
    assert settings(nodes, 0)["NCCL_IB_DISABLE"] == "1", "where one has none, all go without"
    assert settings(nodes, 0)["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"


@pytest.mark.parametrize("name", ["lo", "docker0", "br-3f2a", "veth12"])
def test_mn2_a_way_that_leads_to_no_other_machine_is_refused(name: str) -> None:
    ways = [Interface("eth0", "10.0.0.1", 1500), Interface(name, "172.17.0.1", 1500)]
    (told,) = wrong_interfaces(["one", "ann@two"], ways)
    assert told.startswith("ann@two")


@pytest.mark.parametrize(
    ("value", "beginnings", "found"),
    [
        *[("lo", True, "lo"), ("l", True, "lo"), ("=lo", True, "lo"), ("none0,lo", False, "lo")],
        *[("=l", True, ""), ("l", False, ""), ("none0", True, "")],
    ],
)
def test_mn2_an_interface_that_the_job_names_is_found_as_the_libraries_do(
    value: str, beginnings: bool, found: str
) -> None:
    """On this machine's own loopback."""
    if found:
        assert named(value, beginnings)[:2] == (found, "127.0.0.1")
    else:
        with pytest.raises(OSError, match=r"no interface of that name has an address there \(it has .*lo"):
            named(value, beginnings)


def test_mn4_the_sizes_of_jumbo_frames_and_of_usual_ones_are_tried() -> None:
    assert sizes(9000) == [1472, 8972]
    assert sizes(1500) == [1472]
    assert sizes(1400) == [1372]
    ends = Interface("eth0", "10.0.0.1", 9000), Interface("eth0", "10.0.0.2", 9000)
    passed = {"tcp": "", "out": 8972, "back": 1472, "stream": None}
    assert "packets with 8972 bytes don't get from two to one, and 1472 bytes do" in hole("one", "two", *ends, passed)
    assert hole("one", "two", *ends, {**passed, "back": 8972}) == ""
    udp_lost = {"tcp": "", "out": None, "back": None, "stream": True}
    assert hole("one", "two", *ends, udp_lost) == "", "a firewall that drops UDP is no hole"
    assert "a megabyte does not" in hole("one", "two", *ends, {**udp_lost, "stream": False})
    assert "let all TCP pass" in hole("one", "two", *ends, {**udp_lost, "tcp": "timed out"})


def test_mn5_a_job_that_keeps_no_state_does_not_restore(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step 0')\n")
    assert not restores(tmp_path, "python train.py", {}, False)
    assert restores(tmp_path, "python train.py", {}, True)
    assert restores(tmp_path, "python train.py --resume {checkpoints}", {}, False)
    assert restores(tmp_path, "python train.py", {"FROM": "{checkpoints}"}, False)
    (tmp_path / "more").mkdir()
    (tmp_path / "more/state.py").write_text("from sweepstack_checkpoint import TrainingState\n")
    assert restores(tmp_path, "python train.py", {}, False)


@pytest.mark.parametrize(
    ("run", "start", "rest"),
    [
        ("python train.py --lr 0.1", "python -m torch.distributed.run", "--nproc-per-node=8 train.py --lr 0.1"),
        ("python3 -m pkg.train x", "python3 -m torch.distributed.run", "--nproc-per-node=8 -m pkg.train x"),
        ("torchrun train.py", "torchrun", "--nproc-per-node=8 train.py"),
        ("torchrun --nproc-per-node 2 train.py", "torchrun", "--nproc-per-node 2 train.py"),
        ("torchrun --nproc_per_node=2 train.py", "torchrun", "--nproc_per_node=2 train.py"),
    ],
)
def test_the_command_of_a_node(run: str, start: str, rest: str) -> None:
    assert refusal(run) == ""
    assert on_each_node(run, "--ours", 8) == f"exec {start} --ours --max-restarts=0 {rest}"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("./train.sh", "begins with ./train.sh"),
        ("A=1 python train.py", "begins with A=1"),
        ("python train.py && rm -r data", "each node would run all of it"),
        ("python train.py | tee log", "each node would run all of it"),
        ("python train.py > log", "each node would run all of it"),
        ("python -u train.py", "an option of its own"),
        ("torchrun --nnodes=2 train.py", "says --nnodes, which sweepstack sets itself"),
        ("torchrun --rdzv_backend c10d train.py", "says --rdzv-backend"),
        ("torchrun --max-restarts=3 train.py", "job.retries is how often a cell is tried again"),
        ("horovodrun -np 8 --min-np 4 python train.py", "horovodrun pauses in silence below --min-np"),
        ("python 'train.py", "can't be read as one shell command"),
        (". env/bin/activate; python train.py", "each node would run all of it"),
        (". env/bin/activate && ./train.sh", "begins with ./train.sh"),
        (". env/bin/activate", "begins with ."),
        ("module load cuda && torchrun train.py && rm -r data", "each node would run all of it"),
        ("apptainer exec --nv img.sif ./train.sh", "begins with apptainer"),
        ("apptainer exec img.sif ./prepare && python train.py", "begins with &&"),
        ("/envs/{env}/bin/python train.py", "has a placeholder before its script"),
        ("/opt/env/bin/torchrun --nnodes=2 train.py", "says --nnodes"),
    ],
)
def test_a_command_that_can_t_run_on_several_nodes(run: str, words: str) -> None:
    assert words in refusal(run)


def test_a_program_starts_on_a_node_of_the_allocation_by_its_command() -> None:
    given = Allocation({"n2": "10.0.0.2", "n1": "10.0.0.1"}, ["srun", "--nodelist={node}"])
    assert peer_of("n1", given).command(["echo", "a b"]) == ["srun", "--nodelist=n1", "echo", "a b"]


@pytest.mark.parametrize(
    ("code", "said", "lost"),
    [
        (1, "srun: error: Unable to confirm allocation for job 17: Invalid job id specified", True),
        (1, "srun: error: Node failure on n2", True),
        (1, "srun: error: n2: task 0: Exited with exit code 1", False),
        (0, "", False),
    ],
)
def test_a_program_that_failed_is_no_node_that_is_lost(code: int, said: str, lost: bool) -> None:
    assert bool(AllocatedPeer("n2", Allocation({"n2": "10.0.0.2"}, [])).lost(code, said)) is lost


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab's environment: a real one, with what stands for torch in it, and a container program that only runs."""
    env = tmp_path_factory.mktemp("lab") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    (site,) = (env / "lib").glob("python*/site-packages")
    (site / "torch-9.9.9.dist-info").mkdir()
    (site / "torch-9.9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")
    (site / "torch" / "distributed").mkdir(parents=True)
    (site / "torch" / "distributed" / "run.py").write_text("import sys; print(sys.executable)")
    (env.parent / "bin").mkdir()
    tools = {
        env / "bin" / "torchrun": f"#!{env}/bin/python\nimport sys; print(sys.executable)\n",
        env.parent / "bin" / "apptainer": f'#!/bin/sh\nshift 3; PATH={env}/bin:$PATH; exec "$@"\n',
    }
    for path, text in tools.items():
        path.write_text(text)
        path.chmod(0o755)
    return env.parent


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ("{0}/env/bin/python train.py", ""),
        ("{0}/env/bin/torchrun train.py", ""),
        (". {0}/env/bin/activate && python3 -m pkg.train", ""),
        ("export A='b && c' && . {0}/env/bin/activate && torchrun train.py", ""),
        ("torchrun train.py", "{0}/env/bin:"),  # job.env.PATH
        ("apptainer exec --nv img.sif python train.py", "{0}/bin:"),
        ("{0}/bin/apptainer exec --nv img.sif torchrun train.py", ""),
    ],
)
def test_the_look_asks_the_interpreter_that_the_run_uses(lab: Path, run: str, path: str) -> None:
    run, env = run.format(lab), {"PATH": path.format(lab) + os.environ["PATH"]}
    assert refusal(run) == ""
    said = facts._versions({"look": probe_command(run), "env": env}, lab, 0)
    assert (said.get("torch"), said.get("executable", "").rpartition("/")[0]) == ("9.9.9", f"{lab}/env/bin"), said
    argv = ["/bin/sh", "-c", on_each_node(run, "", 1)]
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, cwd=lab)
    assert ran.stdout.strip() == said["executable"]


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    for run in (f"{tmp_path}/no/python train.py", f"{tmp_path}/no/torchrun train.py"):
        said = facts._versions({"look": probe_command(run), "env": {}}, tmp_path, 0)["problem"]
        assert f"{tmp_path}/no/" in said


def test_options_of_the_script_are_its_own() -> None:
    assert refusal("torchrun train.py --nnodes 2 --max-restarts 1") == ""
    assert refusal("torchrun -m pkg.train --master-port 1") == ""


@pytest.mark.parametrize("name", ["ann@two", "two", "ann@two:2222", "10.0.0.2"])
def test_a_peer_is_entered_without_a_question(name: str) -> None:
    argv = Peer(name).command(["echo", "a b"])
    assert argv[0] == "ssh"
    assert "BatchMode=yes" in argv
    assert argv[-1] == "echo 'a b'"
    assert ("2222" in argv) is name.endswith(":2222")


@pytest.mark.parametrize("name", ["", "ann@", "-oProxyCommand=x", "ann@two/data", "ann@two,b", "ann@two 3"])
def test_what_is_no_peer(name: str) -> None:
    with pytest.raises(ValueError, match="is no peer"):
        Peer(name)
