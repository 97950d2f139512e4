"""The network of a host, by its effect: what is asked of a mirror of ours on loopback, and what comes back from it."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.launch.launch import SetupFailed
from tests.addresses import at_a_new_address
from tests.simulators import machines
from tests.unit.launch.host_site import HostSite
from tests.unit.launch.support import IDENTITY
from tests.unit.loopback import Server, reply

CELL = """\
import json, os, sys, urllib.request
import mirrored_thing
url = os.environ["HF_ENDPOINT"] + "/api/models/gpt2"
said = json.load(urllib.request.urlopen(url, timeout=20))
kept = os.path.join(os.environ["HF_HOME"], "hub")
os.makedirs(kept)
json.dump({"word": mirrored_thing.WORD, "hub": said["id"], "kept": kept}, open(sys.argv[1] + "/result.json", "w"))
"""
DEAD = "http://127.0.0.1:1"
"""A proxy at which nobody answers: whoever goes through it fails."""


def wheel() -> bytes:
    """A package that is on no index but ours."""
    info, found = "mirrored_thing-1.5.dist-info", io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("mirrored_thing.py", "WORD = 'from the mirror'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: mirrored-thing\nVersion: 1.5\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return found.getvalue()


@pytest.fixture
def mirror() -> Iterator[Server]:
    name = "mirrored_thing-1.5-py3-none-any.whl"
    server = at_a_new_address(Server)
    server.script = [reply(404)]
    server.routes = {
        "GET /simple/mirrored-thing/": [reply(200, f'<a href="/files/{name}">{name}</a>'.encode(), kind="text/html")],
        f"GET /files/{name}": [reply(200, wheel(), kind="application/octet-stream")],
        "GET /hf/api/models/gpt2": [reply(200, {"id": "gpt2, as mirrored"})],
    }
    server.start()
    yield server
    server.stop()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSite]:
    machines.require()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    found = HostSite(tmp_path, monkeypatch)
    (found.job / "cell.py").write_text(CELL)
    yield found
    found.close()


def test_set_up_and_cells_go_by_the_mirrors_past_the_proxy(site: HostSite, mirror: Server) -> None:
    """pip in the set-up and the hub in a cell reach the mirrors, although the platform's proxy would lead nowhere."""
    (site.folder / "turbo").write_text(f"export http_proxy={DEAD} https_proxy={DEAD}\necho the proxy is on\n")
    network = {
        "env": {
            "PIP_INDEX_URL": f"{mirror.url}/simple",
            "HF_ENDPOINT": f"{mirror.url}/hf",
            "HF_HOME": "~/proj/.hf",
        },
        "proxy_on": f"source {site.folder}/turbo",
        "proxy_always": True,
    }
    run, setup = "python cell.py {out}", "pip install mirrored-thing && env > network"
    site.launch("a", run=run, setup=setup, network=network, seconds=120)
    site.until_state("sealed", "a")
    sealed = json.loads(site.channel.read(f"mnt/durable/{IDENTITY}/cells/a/result.json"))
    kept = str(site.host.home / "proj/.hf/hub")
    assert sealed == {"word": "from the mirror", "hub": "gpt2, as mirrored", "kept": kept}
    assert Path(kept).is_dir(), "`~` is the home of the host's user"
    asked = [path for _, path, _, _ in mirror.seen]
    assert asked[0] == "/simple/mirrored-thing/"
    assert "/hf/api/models/gpt2" in asked
    (seen,) = site.root.glob("data/sweep/code/*/network")
    assert f"https_proxy={DEAD}" in seen.read_text(), "the platform's proxy was on"


def test_a_proxy_that_can_t_be_turned_on_starts_nothing(site: HostSite) -> None:
    network = {"proxy_on": "echo no route to the proxy; false", "proxy_always": True}
    with pytest.raises(SetupFailed, match=r"failed with 1: no route to the proxy.*network: \{proxy: false\}"):
        site.launch("a", network=network, seconds=60)
    assert site.started() == []
    site.drained()
    site.launch("a", seconds=60)
    site.until_state("sealed", "a")
