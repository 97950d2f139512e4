"""`sweepctl confirm host`: a host key is pinned when a person names it, and never else. Against a real sshd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.channel.pinned_keys import HostKeyChanged, fingerprint
from sweepstack.cli.commands import ssh
from sweepstack.cli.commands.confirm import host as trust
from sweepstack.cli.output import NO, YES, Out
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import No, Unsure
from tests.screens import Screen
from tests.simulators import machines
from tests.unit.channel.worlds import SshWorld

TARGET: Any = SimpleNamespace(stack="sweep-t")
BOX = SimpleNamespace(name="box-0", adapter="any", native_id="test-box", account="acc")


@pytest.fixture
def rented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshWorld]:
    """A box, its state, and a person with a key."""
    machines.require()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    made = SshWorld(tmp_path)
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(made.key.identity))
    platform = SimpleNamespace(
        get=lambda *_: SimpleNamespace(
            phase="running",
            endpoint=SshEndpoint(made.machine.host, made.machine.port, start="1") if made.machine.alive else None,
        )
    )
    box = SimpleNamespace(**vars(BOX), context=lambda: SimpleNamespace(platform=platform))
    for module in (trust, ssh):
        monkeypatch.setattr(module, "find_box", lambda *_: box)
    monkeypatch.setattr(made, "connect", lambda: SshWorld.connect(made, host_keys=None))
    made.channel.close()
    made.channel = made.connect()
    yield made
    made.close()


def new_key(world: SshWorld) -> str:
    world.channel.close()
    world.machine.stop()
    for path in (world.machine.disk / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    world.machine.restart()
    return fingerprint(world.machine.host_key).split()[-1]


def test_the_pinned_key_is_the_one(rented: SshWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert trust.trust_host(TARGET, "box-0", "", Out(as_json=False)) == NO
    assert "nothing yet" in capsys.readouterr().out
    assert not rented.channel.pin.pinned
    rented.channel.size("data")
    assert trust.trust_host(TARGET, "box-0", "", Out(as_json=False)) == YES
    assert fingerprint(rented.machine.host_key) in Screen(capsys.readouterr().out)


def test_another_key_is_pinned_only_by_its_fingerprint(rented: SshWorld, capsys: pytest.CaptureFixture[str]) -> None:
    rented.channel.size("data")
    before = fingerprint(rented.machine.host_key).split()[-1]
    now = new_key(rented)
    with pytest.raises(HostKeyChanged):
        rented.connect().size("data")
    assert trust.trust_host(TARGET, "box-0", "", Out(as_json=False)) == NO
    said = capsys.readouterr().out
    assert before in said
    assert f"sweepctl confirm host --stack sweep-t box-0 --saw {now}" in said
    for wrong in (before, "SHA256:" + "A" * 43, now[:-1], "ED25519"):
        with pytest.raises(No, match="nothing was pinned"):
            trust.trust_host(TARGET, "box-0", wrong, Out(as_json=False))
    with pytest.raises(HostKeyChanged):
        rented.connect().size("data")
    assert trust.trust_host(TARGET, "box-0", now, Out(as_json=False)) == YES
    assert '"protected": true' in rented.channel.pin.path.read_text()
    later = rented.connect()
    assert later.size("data") is None
    later.close()


def test_a_box_that_does_not_answer_is_not_judged(rented: SshWorld) -> None:
    assert rented.machine.gateway is not None
    rented.machine.gateway.close()
    with pytest.raises(Unsure, match="can't be reached"):
        trust.trust_host(TARGET, "box-0", "", Out(as_json=False))
    rented.machine.stop()
    with pytest.raises(No, match="no SSH address"):
        trust.trust_host(TARGET, "box-0", "", Out(as_json=False))


def test_a_person_on_a_rented_box(
    rented: SshWorld, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ssh, "way_to", lambda *_: rented.channel)
    assert ssh.visit(TARGET, "box-0", ["sh", "-c", "pwd; hostname; exit 7"]) == 7
    assert capfd.readouterr().out == "/sweepstack\nbox-0\n"
    new_key(rented)
    assert ssh.visit(TARGET, "box-0", ["true"]) == ssh.NO_WAY
    assert "sweepctl confirm host" in capfd.readouterr().err
