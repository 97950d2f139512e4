"""A host of the user's own at another address: the same one is followed, another machine is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.channel.pinned_keys import HostKeyChanged
from sweepstack.channel.ssh import route as ssh_config
from sweepstack.cli.commands.confirm.host import trust_host
from sweepstack.cli.output import NO, YES, Out
from sweepstack.core.box_end import Moves
from sweepstack.onbox.common.errors import ConfigError, RequestRefused, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Wait
from sweepstack.platforms.registry import load_platform, prove_same, spelled
from sweepstack.provider.resources.host_address_change import moves
from sweepstack.teardown.box_context import BoxAt
from tests.simulators.host import Host

TAG = "sweepstack-a1b2c3-box-0-g1"
TARGET: Any = SimpleNamespace(stack="sweep-t")


def made(host: Host) -> BoxRecord:
    return load_platform(f"ssh:{host.address}").create(BoxRequest(TAG, "box-0", 0.0), wait=Wait(60))


def moved(host: Host) -> tuple[str, str]:
    """The adapter before and after its sshd got another port."""
    before = f"ssh:{host.address}"
    host.stop()
    host.move()
    host.start()
    return before, f"ssh:{host.address}"


def test_a_new_port_of_the_same_host_is_followed(host: Host) -> None:
    box = made(host)
    assert box.host_keys
    before, after = moved(host)
    with pytest.raises(Unreachable):
        load_platform(before).get(box.native_id, box.account)
    prove_same(after, before, box.native_id, box.account, box.host_keys)
    assert load_platform(after).get(box.native_id, box.account).tag == TAG


def test_a_machine_that_never_saw_it_knows_the_host_key_by_the_state(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = made(host)
    before, after = moved(host)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another machine"))
    with pytest.raises(RequestRefused, match="is not on record here"):
        prove_same(after, before, box.native_id, box.account, ())
    prove_same(after, before, box.native_id, box.account, box.host_keys)


def test_another_machine_at_the_new_address_is_refused_and_nothing_is_sent_to_it(host: Host, tmp_path: Path) -> None:
    box = made(host)
    other = Host(tmp_path / "other")
    (other.folder / "authorized_keys").write_text((host.folder / "authorized_keys").read_text())
    try:
        with pytest.raises(RequestRefused, match=r"another machine answers.*a box of its own under a new name"):
            prove_same(f"ssh:{other.address}", f"ssh:{host.address}", box.native_id, box.account, box.host_keys)
        assert list(other.home.iterdir()) == []
    finally:
        other.stop()


def test_the_same_key_on_another_disk_is_another_account(host: Host) -> None:
    """Two machines of one image."""
    box = made(host)
    before, after = moved(host)
    (host.home / ".local/share/sweepstack/local").rename(host.home / "aside")
    load_platform(after).create(BoxRequest(TAG, "box-0", 0.0), wait=Wait(60))
    with pytest.raises(RequestRefused, match=f"what {box.account} had at .* is not there"):
        prove_same(after, before, box.native_id, box.account, box.host_keys)


def test_a_new_key_of_the_same_host_is_a_persons_word(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    box = made(host)
    before, after = moved(host)
    host.new_key()
    with pytest.raises(RequestRefused, match=f"confirm host BOX {host.address} --saw"):
        prove_same(after, before, box.native_id, box.account, box.host_keys)
    assert trust_host(TARGET, "box-0", "", Out(as_json=False), host=host.address) == NO
    capsys.readouterr()
    key = subprocess.run(["ssh-keygen", "-lf", str(host.folder / "host_key.pub")], capture_output=True, check=True)
    wanted = key.stdout.decode().split()[1]
    assert trust_host(TARGET, "box-0", wanted, Out(as_json=False), host=host.address) == YES
    prove_same(after, before, box.native_id, box.account, box.host_keys)


def test_first_contact_with_an_impostor_does_not_stand_in_the_way_later(host: Host, tmp_path: Path) -> None:
    """Whoever had the new address before may have been pinned there."""
    box = made(host)
    before, after = moved(host)
    own = (host.folder / "host_key").read_bytes()
    host.new_key()
    load_platform(after).account()
    host.stop()
    (host.folder / "host_key").write_bytes(own)
    host.start()
    with pytest.raises(HostKeyChanged, match=f"confirm host BOX {host.address}"):
        load_platform(after).get(box.native_id, box.account)
    prove_same(after, before, box.native_id, box.account, box.host_keys)
    assert load_platform(after).get(box.native_id, box.account).tag == TAG


def test_nobody_there_is_no_verdict(host: Host) -> None:
    box = made(host)
    before, after = moved(host)
    host.stop()
    with pytest.raises(Unreachable):
        prove_same(after, before, box.native_id, box.account, box.host_keys)


def test_a_box_does_not_move_to_another_folder(host: Host) -> None:
    box, adapter = made(host), f"ssh:{host.address}"
    with pytest.raises(RequestRefused, match=f"Write host: {host.address} back"):
        prove_same(f"{adapter}/data", adapter, box.native_id, box.account, box.host_keys)


def test_a_name_goes_into_the_state_with_what_it_leads_to(host: Host, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text("Host gpu1\nHostName 192.0.2.7\nPort 10234\nUser ann\n")
    kept = spelled("ssh:gpu1/data")
    assert kept == "ssh:gpu1=ann@192.0.2.7:10234/data"
    config.write_text("")
    assert spelled("ssh:gpu1/data", kept) == kept, "in CI, which has no such name, nothing changes"
    assert spelled("ssh:gpu1/other", kept) == "ssh:gpu1=ann@192.0.2.7:10234/other"
    assert spelled("ssh:gpu1") == "ssh:root@gpu1:22"
    assert spelled("ssh:ann@192.0.2.7", kept) == "ssh:ann@192.0.2.7:22"
    assert spelled("local") == "local"
    config.write_text("Host gpu1\nHostName 192.0.2.7\nPort 10235\nUser ann\n")
    assert spelled("ssh:gpu1/data", kept) == "ssh:gpu1=ann@192.0.2.7:10235/data", "it has another port now"
    config.write_text("Nonsense\n")
    with pytest.raises(ConfigError, match="ssh -G gpu1"):
        spelled("ssh:gpu1")


def test_what_is_a_change_of_address() -> None:
    assert moves("ssh:a@h:1", "ssh:a@h:2")
    assert not moves("ssh:a@h:1", "ssh:a@h:1")
    for before, after in (("ssh:a@h:1", "local"), ("local", "ssh:a@h:1"), ("local", "other"), (None, "ssh:a@h:1")):
        assert not moves(before, after)


class Named:
    """A host by a name of the ssh configuration, as a command that still runs sees it: it has one platform."""

    def __init__(self, host: Host, config: Path, monkeypatch: pytest.MonkeyPatch, moves: Moves | None) -> None:
        self.host, self.config = host, config
        self.say()
        self.adapter = spelled("ssh:far")
        box = load_platform(self.adapter).create(BoxRequest(TAG, "box-0", 0.0), wait=Wait(60))
        context = BoxAt(self.adapter, box.native_id, box.account, moves=moves)
        self.channel = context.channel()
        self.channel.write("data/x", b"there")
        self.looks = 0
        really = ssh_config.look_up

        def counted(name: str) -> ssh_config.Configured | None:
            self.looks += 1
            return really(name)

        monkeypatch.setattr(ssh_config, "look_up", counted)

    def say(self, port: int = 0) -> None:
        lines = f"HostName 127.0.0.1\n Port {port or self.host.port}\n User {self.host.user}\n"
        self.config.write_text(f"Host far\n {lines}")

    def restart(self) -> None:
        """The machine is stopped and started: its sshd has another port."""
        moved(self.host)


def test_a_name_is_looked_up_again_before_a_command_gives_up(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is unknown whether it moves."""
    named = Named(host, tmp_path / "ssh_config", monkeypatch, None)
    named.restart()
    named.say()
    assert named.channel.read("data/x") == b"there"
    assert named.looks == 1
    named.channel.write("data/y", b"too")
    assert named.looks == 1, "the box is where it was found"


def test_a_box_that_keeps_its_address_costs_no_look(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Named(host, tmp_path / "ssh_config", monkeypatch, "create")
    host.stop()
    with pytest.raises(Unreachable) as told:
        named.channel.read("data/x")
    assert named.looks == 0
    assert "another address" not in str(told.value)


def test_another_machine_at_the_address_that_was_left_hides_no_box(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform gives the port to another person's machine, whose key is another one."""
    named, left = Named(host, tmp_path / "ssh_config", monkeypatch, "start"), host.port
    named.restart()
    named.say()
    other = Host(tmp_path / "other")
    try:
        other.stop()
        other.move(left)
        other.start()
        assert named.channel.read("data/x") == b"there"
    finally:
        other.stop()


def test_another_machine_where_the_name_leads_now_is_refused(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the name leads elsewhere, the error says where the new address goes."""
    named, address = Named(host, tmp_path / "ssh_config", monkeypatch, "start"), host.address
    other = Host(tmp_path / "other")
    (other.folder / "authorized_keys").write_text((host.folder / "authorized_keys").read_text())
    try:
        host.stop()
        with pytest.raises(Unreachable, match=r"another address at each start.*into ~/\.ssh/config \(Host far\)"):
            named.channel.read("data/x")
        with pytest.raises(Unreachable, match=r"another address at each start.*boxes\.<name>\.host"):
            load_platform(f"ssh:{address}", "start").account()
        named.say(other.port)
        with pytest.raises(HostKeyChanged):
            named.channel.read("data/x")
        assert list(other.home.iterdir()) == []
    finally:
        other.stop()
