"""Mirrors, caches and the proxy of a box, as its set-ups and cells see them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.onbox.harness import IDENTITY, QUICK, Box

SHOW = "env > {out}/env; printf '[]' > {out}/result.json"
PROXY = "export https_proxy=http://proxy:30000 no_proxy=far.example; echo on; true"


def env_of(box: Box, cell: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in (box.sealed(cell) / "env").read_text().splitlines())
    return {name: value for name, _, value in pairs}


def network(**said: Any) -> dict[str, Any]:
    return {"env": {"HF_ENDPOINT": "https://hub.mirror/x", "HF_HOME": "~/hf", "ONE": "the box"}, **said}


def test_what_is_asked_by_the_job_goes_before_what_the_box_has(make_box: Callable[..., Box]) -> None:
    box = make_box(network=network(proxy_on=PROXY, proxy_off="unset https_proxy", proxy_always=True), env={})
    box.add("a", SHOW, env={"ONE": "the job"})
    box.run("a")
    found = env_of(box, "a")
    assert (found["ONE"], found["HF_ENDPOINT"]) == ("the job", "https://hub.mirror/x")
    assert found["HF_HOME"] == f"{found['HOME']}/hf"
    assert found["https_proxy"] == "http://proxy:30000"
    assert found["no_proxy"] == found["NO_PROXY"] == "far.example,127.0.0.1,localhost,::1,hub.mirror"
    assert "SHLVL" not in found or found["SHLVL"] == "0"


def test_a_proxy_for_single_calls_is_off_until_it_is_asked_for(make_box: Callable[..., Box]) -> None:
    box = make_box(network=network(proxy_on=PROXY, proxy_off="unset https_proxy"))
    box.add("a", 'eval "$SWEEPSTACK_PROXY_ON"; echo "$https_proxy" > {out}/on; eval "$SWEEPSTACK_PROXY_OFF"; ' + SHOW)
    box.add("b", SHOW)
    box.run("a", "b")
    assert (box.sealed("a") / "on").read_text().strip() == "http://proxy:30000"
    for cell in ("a", "b"):
        assert "https_proxy" not in env_of(box, cell)


def test_a_change_reaches_cells_that_start_later(make_box: Callable[..., Box]) -> None:
    """The network is of no version: nothing is refused, and no checkpoint is lost over it."""
    box = make_box(network=network())
    box.add("a", SHOW)
    box.run("a")
    box.set(network={})
    box.add("b", SHOW)
    box.run("b")
    assert "HF_ENDPOINT" in env_of(box, "a")
    assert "HF_ENDPOINT" not in env_of(box, "b")


def test_ad2_modelscope_and_all_hosts_below_it_go_past_the_proxy(make_box: Callable[..., Box]) -> None:
    """Its variable is a host and no URL, and files come from other hosts of the same domain."""
    said = {"env": {"MODELSCOPE_DOMAIN": "www.modelscope.cn"}, "proxy_on": PROXY, "proxy_always": True}
    box = make_box(network=said, env={})
    box.add("a", SHOW)
    box.run("a")
    found = env_of(box, "a")
    assert found["MODELSCOPE_DOMAIN"] == "www.modelscope.cn"
    assert found["no_proxy"].split(",")[-1] == "modelscope.cn"


def test_ad7_the_outputs_of_cells_are_linked_where_the_tile_looks(make_box: Callable[..., Box], tmp_path: Path) -> None:
    """The newest try of each cell; what the person put there stays; a folder that can't be made ends no cell."""
    tile = tmp_path / "tf-logs"
    (tile / f"{IDENTITY}-mine").mkdir(parents=True)
    box = make_box(network={"tensorboard": str(tile)}, env={}, retries=1)
    box.add("a", 'test "$SWEEPSTACK_ATTEMPT" -gt 1 || exit 1; ' + QUICK)
    box.add("mine")
    box.run("a", "mine")
    assert (tile / f"{IDENTITY}-a").resolve() == (box.home / "cells" / "a" / "2" / "out").resolve()
    assert not (tile / f"{IDENTITY}-mine").is_symlink()
    assert sorted(path.name for path in tile.iterdir()) == [f"{IDENTITY}-a", f"{IDENTITY}-mine"]
    box.set(network={"tensorboard": "/proc/nowhere"})
    box.add("b")
    box.run("b")
