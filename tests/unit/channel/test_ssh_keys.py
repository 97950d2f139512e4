"""Which key a person comes in with, and which host key a box has to show."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.channel import pinned_keys
from sweepstack.channel.pinned_keys import HostKeyChanged, Pin
from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import NotAuthorized

ENDPOINT = SshEndpoint("203.0.113.5", 22017, start="s1")


def make(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    more = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *more, "-N", passphrase, "-C", "me@here", "-f", path], check=True)
    return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A person's shell, without any key."""
    monkeypatch.setattr(ssh_keys, "REMEMBERED_SECONDS", 0.0)
    return {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}


@pytest.fixture
def agent(tmp_path: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The same shell, with an empty agent."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    shell = {**env, "SSH_AUTH_SOCK": str(socket)}
    while subprocess.run(["ssh-add", "-L"], env=shell, capture_output=True).returncode == 2:
        assert process.poll() is None
    yield shell
    process.send_signal(signal.SIGTERM)
    process.wait()


def test_without_a_key_the_command_that_makes_one_is_named(env: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NotAuthorized, match="`ssh-keygen -t ed25519`"):
        ssh_keys.choose(env)
    with pytest.raises(
        NotAuthorized, match=r"SWEEPSTACK_SSH_KEY names .*nowhere.*`ssh-keygen -t ed25519 -f .*nowhere`"
    ):
        ssh_keys.choose({**env, "SWEEPSTACK_SSH_KEY": str(tmp_path / "nowhere")})


def test_what_is_named_comes_first_then_the_agent_then_the_home(agent: dict[str, str], tmp_path: Path) -> None:
    home = Path(agent["HOME"]) / ".ssh"
    rsa = make(home / "id_rsa", kind="rsa")
    assert ssh_keys.choose(agent) == ssh_keys.SshKey(rsa, home / "id_rsa", str(home / "id_rsa"))
    ed = make(home / "id_ed25519")
    assert ssh_keys.choose(agent).public == ed
    held = make(tmp_path / "held")
    subprocess.run(["ssh-add", "-q", tmp_path / "held"], check=True, env=agent)
    chosen = ssh_keys.choose(agent)
    assert (chosen.public, chosen.identity) == (held, None)
    named = make(tmp_path / "named key")
    for path in ("named key", "named key.pub"):
        chosen = ssh_keys.choose({**agent, "SWEEPSTACK_SSH_KEY": str(tmp_path / path)})
        assert (chosen.public, chosen.identity) == (named, tmp_path / "named key")
    assert ssh_keys.public_key({**agent, "SWEEPSTACK_SSH_KEY": str(tmp_path / "named key")}) == named


def test_a_key_that_the_agent_holds_needs_no_file(agent: dict[str, str], tmp_path: Path) -> None:
    public = make(tmp_path / "id")
    subprocess.run(["ssh-add", "-q", tmp_path / "id"], check=True, env=agent)
    (tmp_path / "id").unlink()
    chosen = ssh_keys.choose({**agent, "SWEEPSTACK_SSH_KEY": str(tmp_path / "id")})
    assert (chosen.public, chosen.identity) == (public, None)
    with pytest.raises(NotAuthorized, match="ssh-add"):
        ssh_keys.choose({key: value for key, value in agent.items() if key != "SSH_AUTH_SOCK"}
                        | {"SWEEPSTACK_SSH_KEY": str(tmp_path / "id")})  # fmt: skip


def test_the_public_half_is_derived_where_it_is_missing(env: dict[str, str], tmp_path: Path) -> None:
    public = make(tmp_path / "id")
    (tmp_path / "id.pub").unlink()
    named = {**env, "SWEEPSTACK_SSH_KEY": str(tmp_path / "id")}
    assert ssh_keys.choose(named).public == public
    make(tmp_path / "locked", passphrase="secret words")
    (tmp_path / "locked.pub").unlink()
    with pytest.raises(NotAuthorized, match="ssh-add") as caught:
        ssh_keys.choose({**env, "SWEEPSTACK_SSH_KEY": str(tmp_path / "locked")})
    assert "ssh-keygen -y" in str(caught.value)
    make(tmp_path / "home" / ".ssh" / "id_ed25519", passphrase="secret words")
    with pytest.raises(NotAuthorized, match=r"id_ed25519 can't be used without a question .*ssh-add"):
        ssh_keys.choose(env)
    (tmp_path / "odd.pub").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n")
    with pytest.raises(NotAuthorized, match="no public SSH key"):
        ssh_keys.choose({**env, "SWEEPSTACK_SSH_KEY": str(tmp_path / "odd.pub")})


def test_the_first_key_is_kept_and_no_other_taken(tmp_path: Path) -> None:
    first, other = make(tmp_path / "a"), make(tmp_path / "b", kind="rsa")
    pin = Pin("pod/../evil", "2026-11-21 16:00", tmp_path / "pins")
    assert not pin.pinned
    pin.keep([first], ENDPOINT)
    assert pin.pinned
    assert tmp_path / "pins" in pin.path.parents
    assert len(pin.path.relative_to(tmp_path / "pins").parts) == 2
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "a.pub"], capture_output=True, text=True).stdout
    assert pin.fingerprints() == [f"ED25519 {shown.split()[1]}"]
    found = subprocess.run(["ssh-keygen", "-F", pin.alias, "-f", pin.path], capture_output=True, text=True)
    assert first in found.stdout
    pin.keep([first], ENDPOINT)  # another command was faster, with the same one
    with pytest.raises(HostKeyChanged, match=r"sweepctl confirm host") as caught:
        pin.keep([other], ENDPOINT)
    assert pin.fingerprints()[0] in str(caught.value)
    assert not Pin("pod/../evil", "2026-11-22 09:00", tmp_path / "pins").pinned
    assert os.listdir(pin.path.parent) == [pin.path.name]
    pin.forget()
    pin.forget()
    pin.keep([other], ENDPOINT)
    assert pin.fingerprints()[0].startswith("RSA SHA256:")


def test_pins_lie_in_the_persons_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert pinned_keys.default_folder() == tmp_path / "sweepstack" / "host-keys"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert pinned_keys.default_folder().is_absolute()


def test_a_variable_that_holds_the_key_itself_is_told_and_not_shown(env: dict[str, str]) -> None:
    with pytest.raises(NotAuthorized, match="holds a key itself; it is to hold the path") as caught:
        ssh_keys.choose({**env, "SWEEPSTACK_SSH_KEY": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n"})
    assert "b3BlbnNz" not in str(caught.value)
