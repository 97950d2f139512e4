"""What a preview tells of a platform's slow facts: drivers, mirrors, logins, addresses, traffic, whole hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.box import job_input
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.paths import PACKAGE
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import load_profile, platforms
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, write
from tests.unit.profiles.test_rentals import text, there

GPU = 'gpu: {name: [A100, H100], count: 1, memory: 40GB+, cuda: "12.4+"}'
BILLS = "    budget: {usd: 9}\n    when_done: keep\n    lease: none\n    overrides:"


def notes(root: Path, name: str, old: str = "", new: str = "", *, price: str = "0.5", **facts: Any) -> str:
    """What the preview says there, with one thing of the stack file replaced and some facts changed."""
    said = text(name).replace("price_per_hour: 0.5", f"price_per_hour: {price}") if load_profile(name).ssh else ""
    said = said or GOOD.replace("[local]", f"[{name}]").replace("local: {", f"{name}: {{").replace(
        "    overrides:", BILLS
    )
    assert old in said
    write(root, said.replace(old, new) if old else said)
    return "\n".join(resolve(StackConfig.load(root, "x"), {name: there(name, **facts)}).notes)


@pytest.mark.parametrize(
    ("image", "built"),
    [
        ("nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04", "12.8"),
        ("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime", "12.8"),
        ("runpod/pytorch:2.8.0-py3.11-cuda12.8.1-cudnn-devel-ubuntu22.04", "12.8"),
        ("vastai/pytorch:2.7-cu128", "12.8"),
        ("me/trainer:2026", ""),
    ],
)
def test_an_image_that_needs_a_newer_driver(tmp_path: Path, image: str, built: str) -> None:
    asked = f"{GPU}\n      image: {image}"
    said = notes(tmp_path, "runpod", GPU, asked)
    assert (f"job.image is built for CUDA {built}, and which driver" in said) == bool(built)
    assert ('job.resources.gpu.cuda: "12.8+"' in said) == bool(built)
    assert "is built for CUDA" not in notes(tmp_path, "runpod", GPU, asked.replace("12.4+", "12.8+"))
    old = {"host_driver_cuda_max": "12.6", "unknown": ()}
    if not built:
        assert notes(tmp_path, "runpod", GPU, asked, **old)
        return
    with pytest.raises(ConfigError, match=r"is built for CUDA 12.8, and the drivers of its hosts do 12.6 at most"):
        notes(tmp_path, "runpod", GPU, asked, **old)
    with pytest.raises(ConfigError, match=r"job.resources.gpu.cuda asks for CUDA 12.8, and the drivers"):
        notes(tmp_path, "runpod", "12.4+", "12.8+", **old)


@pytest.mark.parametrize("stack", ["sweep-runpod", "sweep-vast"])
def test_the_shipped_examples_draw_no_warning_that_a_line_of_theirs_would_mend(stack: str) -> None:
    config = StackConfig.load(PACKAGE.parent, stack)
    plan = resolve(config, {name: load_profile(name) for name in config.candidates})
    said = "\n".join([*plan.checked, *plan.notes])
    assert "outlives it" in said, "else nothing was looked at"
    assert "is a tag" not in said
    assert "which driver" not in said


def test_traffic_that_is_billed_is_told_with_what_a_pull_brings(tmp_path: Path) -> None:
    said = notes(tmp_path, "vastai")
    assert "vastai bills each byte in and out of a box, at its host's price (`sweepctl place`, $/GB)" in said
    assert "a pull of all 6 cells brings 0.3 GB at least" in said
    assert "each byte" not in notes(tmp_path, "runpod")
    priced = notes(tmp_path, "runpod", "{price_per_hour: 0.12}", "{price_per_hour: 0.12, egress_per_gb: 0.09}")
    assert "runpod bills each byte in and out of a box, at $0.09/GB: a pull of all 6 cells brings 0.3 GB at" in priced
    assert "at least, about $0.03 at $0.09/GB, besides what the job itself moves" in priced
    free = notes(tmp_path, "vastai", "{price_per_hour: 0.12}", "{price_per_hour: 0.12, egress_per_gb: 0}")
    assert "each byte" not in free
    assert "once some are sealed (`sweepctl status`)" in notes(tmp_path, "vastai", ", min: 50MB", "")
    assert "whether generic-ssh bills the bytes of a pull is not known" in notes(tmp_path, "generic-ssh")
    assert "bytes" not in notes(tmp_path, "generic-ssh", price="0")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("paperspace", "the auto-shutdown of 1 hour to 1 week that was chosen at the create stops the machine"),
        ("matpool", "an idle policy, where it is switched on, stops a box whose card is quiet"),
        ("lambda", "a 1-Click Cluster is rented for two weeks at least"),
    ],
)
def test_what_a_platform_does_by_itself_is_told_in_the_preview(tmp_path: Path, name: str, words: str) -> None:
    assert f"{name}: " in (said := notes(tmp_path, name))
    assert words in said


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("--out {out}", "--out {out} --ckpt $TMPDIR", "job.run"),
        ("env: {", "env: {CKPT: '${SLURM_TMPDIR}/ckpt', ", "job.env.CKPT"),
    ],
)
def test_slurm5_a_folder_that_a_node_wipes_is_told(tmp_path: Path, old: str, new: str, where: str) -> None:
    assert f"slurm: {where} speaks of $TMPDIR, which a node wipes" in notes(tmp_path, "slurm", old, new)
    assert "TMPDIR" not in notes(tmp_path, "slurm")
    assert "TMPDIR" not in notes(tmp_path, "generic-ssh", old, new)


def test_logins_and_addresses(tmp_path: Path) -> None:
    assert "boxes.box-0.host logs in as root, and hosts of lambda have ubuntu" in notes(tmp_path, "lambda")
    moved = "the address of a host may be another after each start"
    assert moved in notes(tmp_path, "gpushare")
    assert moved not in notes(tmp_path, "gpushare", "root@192.0.2.7", "mine")
    assert moved not in notes(tmp_path, "autodl")


def test_a_route_without_its_mirror(tmp_path: Path) -> None:
    away = "price_per_hour: 0.5, network: {mirrors: {pip: false}}"
    assert "gpushare: its hosts reach pip abroad slowly" in notes(tmp_path, "gpushare", "price_per_hour: 0.5", away)
    assert "abroad" not in notes(tmp_path, "gpushare")


def test_whole_hours_and_a_stop_that_bills_on(tmp_path: Path) -> None:
    assert "lanrui bills whole hours" in notes(tmp_path, "lanrui")
    stops = notes(tmp_path, "runpod", "when_done: keep", "when_done: stop")
    assert "runpod: stop (when_done: stop) does not end the bill: the volume disk, at 0.20 USD" in stops
    assert "does not end the bill" not in notes(tmp_path, "runpod")


@pytest.mark.parametrize("name", ["runpod", "vastai", "local"])
def test_an_override_for_hosts_is_refused_where_an_api_rents(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"overrides.{name}.python is for hosts that are entered by SSH; take it out"):
        notes(tmp_path, name, "{price_per_hour: 0.12}", "{python: /usr/bin/python3}")


@pytest.mark.parametrize("name", [name for name in platforms() if load_profile(name).spot_available])
def test_cells_of_a_spot_box_have_no_longer_than_its_platform_gives(tmp_path: Path, name: str) -> None:
    """What the platform gives, less a second, reaches the runner; where it gives nothing, our own stops don't hurry."""
    notes(tmp_path, name, "cpu: 1", "cpu: 1\n        spot: true")
    spot = resolve(StackConfig.load(tmp_path, "x"), {name: there(name)})
    grace = load_profile(name).spot_grace
    assert spot.boxes[0].grace_seconds == (grace - 1 if grace else None)
    assert job_input(spot.job, spot.boxes[0], "").get("grace_seconds") == (grace - 1 if grace else None)
    assert "to save" in "\n".join(spot.notes)
