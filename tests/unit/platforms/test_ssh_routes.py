"""The way to a host: through other hosts, and by a name of the person's own ssh configuration."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.pinned_keys import HostKeyChanged
from sweepstack.channel.ssh import pin_host_key
from sweepstack.channel.ssh import route as ssh_config
from sweepstack.onbox.common.errors import ConfigError, NotAuthorized, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Wait
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from tests.simulators.host import Host
from tests.simulators.machines import require

TAG = "sweepstack-a1b2c3-box-0-g1"


@dataclass
class Net:
    """A host, another one that stands before it, and the ssh configuration of the person."""

    host: Host
    bastion: Host
    config: Path

    def say(self, **blocks: str) -> None:
        """The configuration: name → its lines."""
        texts = (f"Host {name}\n{lines}\n" for name, lines in blocks.items())
        self.config.write_text("".join(texts))

    def only_way(self, address: str, box: BoxRecord) -> None:
        """Without the bastion nobody gets there: a direct way would be open, since all is on this machine."""
        platform = load_platform(f"ssh:{address}")
        assert isinstance(platform, SshPlatform)
        assert platform.way is not None
        assert pin_host_key.shown(platform.way) == list(box.host_keys)
        self.bastion.stop()
        with pytest.raises(Unreachable):
            pin_host_key.shown(platform.way)


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Net]:
    require()
    made = Net(Host(tmp_path / "host"), Host(tmp_path / "bastion"), tmp_path / "ssh config")
    shutil.copy(made.host.folder / "authorized_keys", made.bastion.folder / "authorized_keys")
    made.say()
    monkeypatch.setenv(ssh_config.CONFIG_VARIABLE, str(made.config))
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(made.host.key))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield made
    made.host.stop()
    made.bastion.stop()


def used(address: str) -> BoxRecord:
    """A box there, made, asked and ended."""
    platform = load_platform(f"ssh:{address}")
    assert isinstance(platform, SshPlatform)
    box = platform.create(BoxRequest(TAG, "box-0", 0.0), wait=Wait(60))
    channel = platform.channel(box.native_id, box.account)
    channel.write("data/x", b"there")
    assert channel.read("data/x") == b"there"
    return box


def test_through_another_host(net: Net) -> None:
    address = f"{net.bastion.address},{net.host.address}"
    net.only_way(address, used(address))


def test_through_two_other_hosts(net: Net) -> None:
    """Each is reached through the one before; the second is the first again, by another name of this machine."""
    address = f"{net.bastion.address},{net.bastion.user}@localhost:{net.bastion.port},{net.host.address}"
    net.only_way(address, used(address))


def test_another_machine_on_the_way_is_stopped_at_its_host_key(net: Net) -> None:
    address = f"{net.bastion.address},{net.host.address}"
    box = used(address)
    load_platform(f"ssh:{address}").channel(box.native_id, box.account).close()  # type: ignore[attr-defined]
    net.bastion.new_key()
    with pytest.raises(HostKeyChanged, match=re.escape(f"the host key of {net.bastion.address} at")):
        load_platform(f"ssh:{address}").get(box.native_id, box.account)


def test_a_bastion_that_lets_nobody_in_is_named(net: Net) -> None:
    (net.bastion.folder / "authorized_keys").write_text("")
    with pytest.raises(Unreachable, match=f"{net.bastion.user}@127.0.0.1: Permission denied"):
        used(f"{net.bastion.address},{net.host.address}")


def test_a_name_of_the_configuration(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HostName, Port, User, ProxyJump and IdentityFile, of the host and of the one before it."""
    key = tmp_path / "lab key"
    for suffix in ("", ".pub"):
        shutil.copy(f"{net.host.key}{suffix}", f"{key}{suffix}")
    lines = f'HostName 127.0.0.1\nPort {{}}\nUser {net.host.user}\nIdentityFile "{key}"\n'
    net.say(gpu1=lines.format(net.host.port) + "ProxyJump door\n", door=lines.format(net.bastion.port))
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(tmp_path / "no such key"))
    spelled = str(ssh_config.completed(HostAddress.parse("gpu1/srv/sweeps")))
    assert spelled == f"gpu1={net.bastion.address},{net.host.address}/srv/sweeps", "no path of this machine's key"
    address = f"gpu1={net.bastion.address},{net.host.address}"
    net.only_way(address, used(address))


def test_without_the_configuration_what_it_led_to_does(net: Net) -> None:
    """A delete from CI, weeks later."""
    address = f"gpu1={net.bastion.address},{net.host.address}"
    net.only_way(address, used(address))


def test_where_a_name_leads_now_counts(net: Net) -> None:
    """The state has an old port: that of the configuration here is newer, and the host shows the key of the name."""
    net.say(gpu1=f"HostName 127.0.0.1\nPort {net.host.port}\nUser {net.host.user}\n")
    box = used("gpu1=root@127.0.0.1:1")
    other = load_platform(f"ssh:gpu1={net.host.address}")
    assert other.get(box.native_id, box.account).native_id == box.native_id
    net.say(gpu1=f"HostName 127.0.0.1\nPort {net.bastion.port}\nUser {net.host.user}\n")
    with pytest.raises(HostKeyChanged):
        load_platform("ssh:gpu1=root@127.0.0.1:1").get(box.native_id, box.account)


def test_a_proxy_command_is_used_where_it_is_known_and_named_where_it_is_not(net: Net) -> None:
    inner = f"ssh -F none -i {net.host.key} -p {net.bastion.port} -o StrictHostKeyChecking=no"
    inner += f" -o UserKnownHostsFile=/dev/null -W %h:%p {net.bastion.user}@127.0.0.1"
    net.say(gpu1=f"HostName 127.0.0.1\nPort {net.host.port}\nUser {net.host.user}\nProxyCommand {inner}\n")
    spelled = str(ssh_config.completed(HostAddress.parse("gpu1")))
    assert spelled == f"gpu1=*,{net.host.address}"
    net.only_way(spelled, used(spelled))
    net.say()
    with pytest.raises(Unreachable, match=r"Host gpu1, HostName 127\.0\.0\.1, Port .*, User .*, ProxyCommand"):
        load_platform(f"ssh:{spelled}").account()


def test_a_name_that_is_not_configured_is_a_host(net: Net) -> None:
    net.say(gpu1="User ann\n")
    assert str(ssh_config.completed(HostAddress.parse("gpu2/x"))) == "root@gpu2:22/x"
    assert str(ssh_config.completed(HostAddress.parse("gpu1/x"))) == "gpu1=ann@gpu1:22/x"
    assert str(ssh_config.completed(HostAddress.parse("bob@gpu1"))) == "bob@gpu1:22", "an address in full is itself"


def test_a_configuration_that_does_not_read(net: Net) -> None:
    net.config.write_text("Host gpu1\n Hostname a b c\n Nonsense yes\n")
    with pytest.raises(ConfigError, match="Next: ssh -G gpu1"):
        ssh_config.completed(HostAddress.parse("gpu1"))


def test_a_key_of_the_configuration_that_is_not_there(net: Net) -> None:
    net.say(gpu1="HostName 127.0.0.1\nIdentityFile /nowhere/key\n")
    with pytest.raises(NotAuthorized, match="the ssh configuration of gpu1 names /nowhere/key"):
        load_platform("ssh:gpu1=root@127.0.0.1:1").account()


def test_a_ring_of_hosts_ends(net: Net) -> None:
    net.say(a="ProxyJump b\n", b="ProxyJump a\n")
    with pytest.raises(ConfigError, match="more than 8 hosts"):
        ssh_config.completed(HostAddress.parse("a"))
