"""The README's loop on a host that a command of its own powers off, with the shipped stack file.

`shutdown` is a program on the host's PATH that writes down its call and ends the sshd. Data disk and shared file system
are folders, as where they lie on such an instance is the profile's to say. Its sessions have no Python on their PATH:
the image's own lies where conda puts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack
from tests.rented.world import PACE, without_internet
from tests.simulators.host import Host, without_python
from tests.simulators.machines import require
from tests.unit.autodl_world import autodl_world


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[tuple[Stack, Host, Path]]:
    """A stack, its host, and the record of what was switched off there."""
    require()
    host = Host(tmp_path / "host")
    host.say(PATH=str(without_python(tmp_path / "bin")))
    (host.home / "miniconda3").symlink_to(sys.prefix)
    record = host.install_shutdown()
    shared = host.home / "autodl-fs"
    for folder in (data(host), shared):
        folder.mkdir()
    capped = os.geteuid() == 0
    if capped:  # the shared file system is out of files long before it is out of bytes
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=2000", "tmpfs", str(shared)], check=True)
    stack = Stack(tmp_path / "sweep", name="sweep-autodl")
    stack.env |= {"SWEEPSTACK_SSH_KEY": str(host.key), "SWEEPSTACK_API_PACE": PACE}
    stack.env.pop("SSH_AUTH_SOCK", None)
    stack.evidence = stack.checkout / "results" / "sweep-autodl"
    without_internet(stack)
    stack.edit_config(lambda sweep: sweep["boxes"]["box-0"].update(host=host.address))
    stack.edit_config(lambda sweep: sweep["cells"].update(grid={"lr": [0.1], "seed": [0, 1]}))
    places = {"data": str(data(host)), "scratch": str(data(host)), "durable": str(shared)}
    python = str(host.home / "miniconda3/bin/python")
    network = {"proxy": False, "mirrors": {"huggingface": False}, "caches": {"HF_HOME": False}}
    stack.edit_config(lambda sweep: sweep["overrides"]["autodl"].update(places=places, network=network, python=python))
    try:
        yield stack, host, record
    finally:
        for native_id in boxes(host):
            stack.kill_box(native_id)
        host.stop()
        if capped:
            subprocess.run(["umount", "--lazy", str(shared)], check=True)


def data(host: Host) -> Path:
    """The data disk of the instance."""
    return host.home / "autodl-tmp"


def boxes(host: Host) -> list[str]:
    return [path.name for path in data(host).glob("sweepstack/boxes/[!.]*")]


@pytest.mark.proof  # a host that powers itself off: tests/onbox/test_off.py; what its profile says: tests/conformance
def test_the_loop(instance: tuple[Stack, Host, Path]) -> None:
    """up → destroy refused → wait → pull → verify → approve → up → destroy, which powers it off → audit."""
    stack, host, record = instance
    stack.init()
    ok(stack.up(timeout=300))
    (native_id,) = boxes(host)
    assert '"when_drained":{"command":"shutdown","native":"关机"' in spec(host, native_id)
    assert_refused(stack.destroy(timeout=180))

    ok(stack.sweepctl("wait", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (2, 2)
    ok(stack.sweepctl("approve", verify["receipt"]))
    ok(stack.up(timeout=180))
    shown = stack.pulumi("destroy", "--preview-only", "--diff", timeout=180)
    assert "关机: shutdown" in shown.text, str(shown)
    assert "released by AutoDL at 20" in shown.text, str(shown)
    assert not record.exists(), "until here nothing was switched off"

    done = ok(stack.destroy(timeout=180))
    assert record.read_text() == "shutdown \n"
    assert not host.answers
    assert boxes(host) == [native_id], "关机 keeps every disk, and 释放 is nobody's here"
    assert "sweepstack does not watch it any more: released by AutoDL at 20" in done.text, str(done)
    status = stack.sweepctl("status", "--json", timeout=120).json()
    assert (status["bills"], status["meter"]["per_hour"]) == ("yes", 0.01), "its data disk bills until it is released"
    assert any("释放 the instance" in note for note in status["notes"]), status["notes"]
    assert "confirm gone" in status["next"][0], status["next"]


@pytest.mark.proof  # the handlers: tests/unit/provider/test_wallet.py
def test_the_wallet_is_asked_before_a_box_is_made_and_by_every_look(
    instance: tuple[Stack, Host, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, host, _ = instance
    stack.init()
    with autodl_world(monkeypatch) as autodl:
        stack.env |= {name: os.environ[name] for name in ("AUTODL_TOKEN", "AUTODL_API_BASE_URL")}
        autodl.act("pay_in", {"account": "ann", "yuan": -99.0})
        refused = stack.pulumi("preview", timeout=180)
        assert refused.rc != 0, str(refused)
        assert "the balance does not carry it: $0.13 (¥1.00 at 7.5 to the dollar) left at autodl" in refused.text
        assert boxes(host) == []
        autodl.act("pay_in", {"account": "ann", "yuan": 99.0})
        ok(stack.up(timeout=300))
        [balance] = stack.sweepctl("status", "--json", timeout=120).json()["balances"]
        assert (balance["platform"], balance["usd"], balance["per_hour"]) == ("autodl", pytest.approx(13.33, 0.01), 0.3)
        assert "balance at autodl" in stack.sweepctl("doctor", timeout=120).text


def spec(host: Host, native_id: str) -> str:
    text = (data(host) / "sweepstack/boxes" / native_id / "data/sweep/spec.json").read_bytes().decode("unicode_escape")
    return text.replace("\\u5173\\u673a", "关机")
