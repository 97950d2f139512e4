"""The looks at a host's surviving tier and at its way to the world, run by the real shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.host_setup import facts, network, script, tiers
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.host.preflight import claim
from tests.unit.components.test_steps import run
from tests.unit.loopback import Server, reply

BOX = "host-abcdefghij"


@pytest.fixture
def mirror() -> Iterator[Server]:
    server = Server()
    server.script = [reply(404)]
    server.start()
    yield server
    server.stop()


def test_the_tier_that_outlives_a_host_is_looked_at(tmp_path: Path) -> None:
    place, root = tmp_path / "it's fs", tmp_path / "root"
    place.mkdir()
    asked = {box_layout.DURABLE: {"tier": "durable", "path": str(place)}}
    folder, native_id = claim(root, "box-0", asked)[box_layout.DURABLE]
    link = root / "boxes" / BOX / box_layout.DURABLE
    link.parent.mkdir(parents=True)
    text = script([tiers([box_layout.DURABLE])], box=BOX, root=str(root))
    without = run(text, tmp_path)
    assert (without.returncode, "the box was made without" in without.stderr) == (1, True)
    link.symlink_to(folder)
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stderr
    found = facts(done.stdout)
    assert found["tier_durable"] == f"{folder} ({native_id})"
    assert int(found["tier_durable_free_gb"]) >= 0
    place.rename(tmp_path / "away")
    gone = run(text, tmp_path)
    assert gone.returncode == 1
    assert f"{folder} is not there: its file system is not mounted. Mount it" in gone.stderr


def test_mirrors_are_asked_past_the_proxy(tmp_path: Path, mirror: Server) -> None:
    told = {
        "env": {"HF_ENDPOINT": f"{mirror.url}/hf", "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "HF_HOME": "~/hf"},
        "proxy_on": "export http_proxy=http://127.0.0.1:1; echo on",
        "proxy_always": True,
    }
    done = run(script([network(told, sys.executable)], box=BOX), tmp_path)
    assert done.returncode == 0, done.stderr
    found = facts(done.stdout)
    assert (found["proxy"], found["route_hf_endpoint"]) == ("on", "answers")
    assert found["route_pip_index_url"].startswith("does not answer:")
    assert [path for _, path, _, _ in mirror.seen] == ["/hf"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "none"),
        ({"proxy_on": "export http_proxy=x"}, "for single calls"),
        ({"proxy_on": "true", "proxy_always": True}, "its line sets none"),
    ],
)
def test_what_the_proxy_is(tmp_path: Path, told: dict[str, object], said: str) -> None:
    done = run(script([network(told, sys.executable)], box=BOX), tmp_path)
    assert facts(done.stdout) == {"proxy": said}


def test_a_proxy_that_can_t_be_turned_on_ends_the_set_up(tmp_path: Path) -> None:
    told = {"proxy_on": "source /nowhere/turbo", "proxy_always": True}
    done = run(script([network(told, sys.executable)], box=BOX), tmp_path)
    assert done.returncode == 1
    assert "the proxy's line failed with" in done.stderr
    assert "network: {proxy: false}" in done.stderr
