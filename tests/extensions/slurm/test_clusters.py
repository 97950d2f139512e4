"""Sweeps on a cluster, from the stack config to the plan: what is refused, and what a rented cluster costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.sweep import outlook_of
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.fleet import Fleet
from sweepstack.profiles.load import load_profiles, platforms
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import write

OWN = """\
config:
  sweepstack:sweep:
    job:
      workdir: examples/digits
      run: python train.py --seed {seed} --out {out}
      resources: {gpu: {count: 2}, time: 12h}
    cells: {grid: {seed: [0, 1, 2]}}
    artifacts: {best.pt: {load: torch}}
    candidates: [slurm]
    boxes:
      a: {host: "ann@login.lab/scratch/ann", workers: 4}
    pull_to: results/x
    overrides: {slurm: {purge_days: 30}}
"""
RENTED = OWN.replace("{purge_days: 30}", "{purge_days: 30, price_per_hour: 24}").replace(
    "    pull_to", "    budget: {usd: 500}\n    when_done: keep\n    lease: none\n    pull_to"
)


def plan(root: Path, text: str) -> Plan:
    write(root, text)
    return resolve(StackConfig.load(root, "x", platforms()), load_profiles(platforms()))


def refusal(root: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(root, text)
    return " ".join(str(caught.value).split())


def test_a_cluster_of_your_own_ends_without_a_person(tmp_path: Path) -> None:
    ends = plan(tmp_path, OWN).teardown
    assert not ends.rented
    assert ends.stop is not None
    assert (ends.stop.price_per_hour, ends.stop.bills_after) == (0, ())


def test_what_its_workers_ask_for_is_no_property_of_the_box(tmp_path: Path) -> None:
    """So a change of it replaces nothing."""
    (box,) = plan(tmp_path, OWN).boxes
    assert box.resources == {}


def test_what_its_boxes_run_at_once_counts_all_workers(tmp_path: Path) -> None:
    """Two cells a worker: by it the cells are shared out, and the budget's forecast is made."""
    workers = '      a: {host: "ann@login.lab/scratch/ann", workers: 4}\n'
    made = plan(
        tmp_path,
        OWN.replace(workers, workers + workers.replace("a:", "b:").replace("lab/", "uni/").replace(", workers: 4", "")),
    )
    assert [(box.name, box.slots, box.at_once) for box in made.boxes] == [("a", 2, 8), ("b", 2, 2)]
    assert outlook_of(Fleet((made,), ("a", "b")), made.boxes)["slots"] == 10


def test_on_a_rented_cluster_scancel_ends_no_bill(tmp_path: Path) -> None:
    """Neither a stop nor a destroy does: a stopped box costs what the cluster costs, and a person ends it."""
    made = plan(tmp_path, RENTED)
    assert made.price_per_hour == 24
    assert made.teardown.rented
    assert made.teardown.issue is not None
    assert made.teardown.issue.by == "person"
    stop = made.teardown.stop
    assert stop is not None
    assert stop.price_per_hour == 24
    assert stop.bills_after == ("the whole cluster, until a person ends it where it was rented",)
    assert any("only a person can end a box there" in note for note in made.notes)


def test_what_a_stopped_cluster_costs_can_be_said(tmp_path: Path) -> None:
    stop = plan(tmp_path, RENTED.replace("hour: 24", "hour: 24, stopped_price_per_hour: 2")).teardown.stop
    assert stop is not None
    assert stop.price_per_hour == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("    budget: {usd: 500}\n", "it sends a bill, so the sweep needs a budget"),
        ("    when_done: keep\n", "it sends a bill, so the config must say when_done"),
        ("    lease: none\n", "it sends a bill, so the config must say lease"),
    ],
)
def test_a_rented_cluster_needs_what_rented_hosts_need(tmp_path: Path, line: str, words: str) -> None:
    assert words in refusal(tmp_path, RENTED.replace(line, ""))


@pytest.mark.parametrize(
    "text", [OWN.replace("    pull_to", "    lease: 2h\n    pull_to"), RENTED.replace("none", "2h")]
)
def test_a_lease_that_no_job_could_keep_is_refused(tmp_path: Path, text: str) -> None:
    assert "lease: 2h can't be kept there: no job of a cluster ends its bill" in refusal(tmp_path, text)


@pytest.mark.parametrize(("old", "new"), [("when_done: keep", "when_done: stop"), ("usd: 500", "usd: 500, stop: true")])
def test_stops_from_inside_are_refused(tmp_path: Path, old: str, new: str) -> None:
    assert "a cluster that is rented ends where it was rented" in refusal(tmp_path, RENTED.replace(old, new))


PRICED = OWN.replace("{purge_days: 30}", "{price_per_gpu_hour: 1.5, gpu_hours: 100}").replace(
    "      resources", "      timeout: 3h\n      resources"
)


def test_what_gpu_hours_come_to_stands_in_the_preview(tmp_path: Path) -> None:
    """4 workers with 2 GPUs; each GPU is a slot, so a cell holds one of them for 3 h at most."""
    made = plan(tmp_path, PRICED)
    (line,) = [line for line in made.checked if "GPU-hours" in line]
    assert line == (
        "slurm: its workers hold 8 GPUs while all run: 8 GPU-hours an hour ($12.00); 100 of the allocation last 12.5 h "
        "of that; 3 cells of one try each, with job.timeout 3h, take 9.0 at most ($13.50)"
    )
    assert not made.teardown.rented, "what jobs hold ends with them"
    told = made.boxes[0].scheduler
    assert (told["price_per_gpu_hour"], told["gpu_hours"]) == (1.5, 100)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PRICED.replace("_hour: 1.5", "_hour: 1.5, price_per_hour: 24"), "price_per_hour is of the whole cluster"),
        (PRICED.replace("gpu: {count: 2}, ", ""), "counts GPUs, and job.resources asks for none: add resources.gpu"),
        (PRICED.replace("slurm", "generic-ssh").replace(", workers: 4", ""), "gpu_hours is for clusters"),
    ],
)
def test_gpu_hours_that_mean_nothing_are_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


def test_options_of_the_site_are_handed_on_as_they_are(tmp_path: Path) -> None:
    more = OWN.replace("time: 12h", 'time: 12h, sbatch: ["--exclude=n3", "--comment=a b", --exclusive]')
    assert plan(tmp_path, more).boxes[0].scheduler["sbatch"] == ["--exclude=n3", "--comment=a b", "--exclusive"]
    one = plan(tmp_path, OWN.replace("time: 12h", "sbatch: --reservation=course")).boxes[0].scheduler
    assert one["sbatch"] == ["--reservation=course"]
    assert "sbatch" not in plan(tmp_path, OWN.replace("time: 12h", "sbatch: []")).boxes[0].scheduler


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--partition=x", "--partition is set by resources.partition; take --partition=x out"),
        ("--part=x", "--partition is set by resources.partition; take --part=x out"),
        ("--mem-per-gpu=4G", "--mem-per-gpu is set by resources.memory"),
        ("--array=0-9%2", "--array is set by boxes.<name>.workers"),
        ("--clusters=b", "boxes.<name>.host: name a login node of that cluster"),
        ("--no-requeue", "--no-requeue is set by sweepstack itself"),
        ("--test-only", "--test-only is set by sweepstack itself"),
        ("-x n3", "each in one text and by its long name: --exclude=n3, not -x n3"),
        ("--exclude n3", "each in one text and by its long name"),
        ("train.sh", "each in one text and by its long name"),
    ],
)
def test_an_option_that_is_ours_is_refused_with_its_key(tmp_path: Path, option: str, words: str) -> None:
    said = refusal(tmp_path, OWN.replace("time: 12h", f'sbatch: ["{option}"]'))
    assert "line 6 job.resources.sbatch" in said
    assert words in said
