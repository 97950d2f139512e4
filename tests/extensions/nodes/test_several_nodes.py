"""Cells over several nodes in a stack config: each mistake with its line and its fix; and what reaches the box."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.box import job_input
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.job import JobInput
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import load_profiles, platforms
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import write

TWO = """\
config:
  sweepstack:sweep:
    job:
      workdir: examples/digits
      nodes: 2
      timeout: 12h
      run: torchrun train.py --seed {seed} --out {out}
      resources: {gpu: {count: 8}}
    cells: {grid: {seed: [0, 1, 2]}}
    artifacts: {best.pt: {load: torch}}
    candidates: [generic-ssh]
    boxes:
      a: {host: "ann@one", peers: ["ann@two:2222"]}
      b: {host: "ann@three", peers: four}
    pull_to: results/x
    overrides: {generic-ssh: {price_per_hour: 0}}
"""


def plan(root: Path, text: str = TWO) -> Plan:
    write(root, text)
    return resolve(StackConfig.load(root, "x", platforms()), load_profiles(platforms()))


def test_a_box_is_told_its_peers_and_a_cell_on_how_many_nodes_it_runs(tmp_path: Path) -> None:
    made = plan(tmp_path)
    first, second = (JobInput.model_validate(job_input(made.job, box, "sha256:" + "0" * 64)) for box in made.boxes)
    assert first.nodes is not None
    assert second.nodes is not None
    assert (first.nodes.peers, second.nodes.peers) == (("ann@two:2222",), ("four",))
    assert first.env == {"SWEEPSTACK_NODES": "2"}, "it is a part of the version: a cell that started keeps it"
    assert first.slots == 1, "a cell has all of each node"


def test_without_nodes_nothing_is_told(tmp_path: Path) -> None:
    text = TWO.replace("      nodes: 2\n", "").replace(', peers: ["ann@two:2222"]', "").replace(", peers: four", "")
    made = plan(tmp_path, text)
    given = job_input(made.job, made.boxes[0], "sha256:" + "0" * 64)
    assert "nodes" not in given
    assert given["env"] == {}
    assert given["slots"] == 8


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("peers: four", "peers: [four, five]", "line 14 boxes.b.peers job.nodes is 2: peers has to name 1 machine"),
        ("nodes: 2", "nodes: 3", "line 13 boxes.a.peers job.nodes is 3: peers has to name 2 machines besides the host"),
        ("nodes: 2", "nodes: 0", "line 5 job.nodes: 0 expected a whole number from 1 on"),
        ("nodes: 2", "nodes: 1", "line 13 boxes.a.peers are for cells on several nodes: say job.nodes"),
        ("peers: four", "peers: ann@four/data", 'line 14 boxes.b.peers[0]: "ann@four/data" expected a machine as the'),
        ("      timeout: 12h\n", "", "line 5 job.nodes a rank that hangs would hold all nodes: say job.timeout"),
        ("timeout: 12h", "timeout: 12h\n      slots: 2", "line 7 job.slots a cell on several nodes has all of each"),
        ("run: torchrun", "run: sh", "line 7 job.run job.nodes is 2, and the command begins with sh; start it with"),
        (
            "run: torchrun",
            "run: horovodrun",
            "line 7 job.run job.nodes is 2, and the command horovodrun pauses in silence",
        ),
        ("run: torchrun", "run: torchrun --nnodes=2", "and the command says --nnodes, which sweepstack sets itself"),
        (
            "    pull_to",
            "    mounts: {/data: {source: s3://lab/data, mode: COPY}}\n    pull_to",
            "a bucket is brought to the first node alone",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert TWO.count(old) == 1
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, TWO.replace(old, new))
    assert words in " ".join(str(caught.value).split())


CLUSTER = (
    TWO.replace("generic-ssh", "slurm")
    .replace(', peers: ["ann@two:2222"]', "")
    .replace(", peers: four", ", workers: 3")
)


def test_on_a_cluster_each_worker_is_given_its_nodes(tmp_path: Path) -> None:
    made = plan(tmp_path, CLUSTER.replace("timeout: 12h", "timeout: 12h\n      restores: true"))
    told = JobInput.model_validate(job_input(made.job, made.boxes[1], "sha256:" + "0" * 64))
    assert told.nodes is not None
    assert (told.nodes.allocated, told.nodes.peers, told.nodes.restores) == (True, (), True)
    assert told.scheduler is not None
    assert (told.scheduler.nodes, told.scheduler.workers, told.slots) == (2, 3, 1)
    with pytest.raises(ConfigError, match="a cluster gives each worker its nodes: leave peers out"):
        plan(tmp_path, TWO.replace("generic-ssh", "slurm"))


def test_restores_is_for_several_nodes(tmp_path: Path) -> None:
    text = (
        TWO.replace("nodes: 2", "restores: true").replace(', peers: ["ann@two:2222"]', "").replace(", peers: four", "")
    )
    with pytest.raises(ConfigError, match=r"restores +is for cells on several nodes"):
        plan(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[generic-ssh]", "[local]", "local: job.nodes is 2, and its boxes have no network to each other"),
        ("[generic-ssh]", "[runpod]", "runpod: job.nodes is 2, and its boxes have no network to each other"),
        ("[generic-ssh]", "[colab]", "colab: job.nodes is 2, and its boxes are run by hand"),
        ("peers: four", 'peers: "ann@two:2222"', "boxes.b and boxes.a both have ann@two:2222"),
        (
            ', peers: ["ann@two:2222"]',
            "",
            "boxes.a.peers is missing: job.nodes is 2, so it has to name 1 other machines",
        ),
        ("peers: four", "peers: ann@three", "boxes.b names ann@three:22 as its host and as a peer"),
    ],
)
def test_where_cells_can_t_run_on_several_nodes(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, TWO.replace(old, new))
    assert words in str(caught.value)
