"""Hosts whose sessions have no `python3`, or one too old: images that bring conda put it into a login's PATH alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from components.host_setup import facts, preflight, script
from sweepstack.channel import agent_source, interpreters
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.registry import load_platform
from sweepstack.profiles.load import load_profile, platforms
from tests.simulators import host as hosts
from tests.simulators.host import Host, without_python

TAG = "sweepstack-a1b2c3-box-0-g1"
OLD = "#!/bin/sh\necho 'sweepstack: python3 here is 3.6' >&2; exit 97\n"

pytestmark = pytest.mark.skipif(bool(hosts.PYTHON), reason="the hosts of these tests have been told their python3")


def lacks_python(host: Host, tmp_path: Path) -> Path:
    """The host's sessions find everything but Python. Returns the folder of their PATH."""
    folder = without_python(tmp_path / "bin")
    host.say(PATH=str(folder))
    return folder


def has_conda(host: Host) -> Path:
    """The interpreter of an installation that nothing points to."""
    base = host.home / "miniconda3"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(base)], check=True)
    return base / "bin" / "python"


def made(host: Host) -> BoxRecord:
    return load_platform(f"ssh:{host.address}").create(BoxRequest(TAG, "box-0", 0.0), wait=Wait(120))


def lacks(host: Host, tmp_path: Path) -> None:
    lacks_python(host, tmp_path)


def is_too_old(host: Host, tmp_path: Path) -> None:
    old = lacks_python(host, tmp_path) / "python3"
    old.write_text(OLD)
    old.chmod(0o755)


@pytest.mark.parametrize("state", [lacks, is_too_old])
def test_the_one_of_the_image_is_taken(host: Host, tmp_path: Path, state: Callable[[Host, Path], None]) -> None:
    """To make a box, to look at it, to run on it, to visit it, and to end it."""
    state(host, tmp_path)
    python = has_conda(host)
    box = made(host)
    platform = load_platform(f"ssh:{host.address}")
    channel = platform.channel(box.native_id, box.account)
    assert channel.python == str(python)
    assert channel.run(["sh", "-c", "echo here"], timeout=60).stdout.strip() == b"here"
    assert channel.attach(["sh", "-c", "exit 7"]) == 7
    platform.destroy(box.native_id, box.account)
    assert platform.get(box.native_id, box.account).phase is Phase.GONE


def test_the_one_of_the_path_comes_first(host: Host, tmp_path: Path) -> None:
    folder = lacks_python(host, tmp_path)
    (folder / "python3").symlink_to(sys.executable)
    has_conda(host)
    box = made(host)
    channel = load_platform(f"ssh:{host.address}").channel(box.native_id, box.account)
    assert channel.python == str(folder / "python3")


@pytest.mark.parametrize("state", [lacks, is_too_old])
def test_where_there_is_none_the_error_says_what_to_do(
    host: Host, tmp_path: Path, state: Callable[[Host, Path], None]
) -> None:
    state(host, tmp_path)
    with pytest.raises(PlatformError, match=r"python3.*`ln -s /opt/conda"):
        made(host)


def test_the_preflight_of_the_set_up_finds_the_same(host: Host, tmp_path: Path) -> None:
    lacks_python(host, tmp_path)
    python = has_conda(host)
    environment = {"HOME": str(host.home), "PATH": str(tmp_path / "bin")}
    words = {"input": script([preflight()], box="b"), "text": True, "capture_output": True}
    done = subprocess.run(["/bin/sh", "-s"], env=environment, **words)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert facts(done.stdout)["python"] == ".".join(map(str, sys.version_info[:3]))
    python.unlink()
    done = subprocess.run(["/bin/sh", "-s"], env=environment, **words)  # type: ignore[call-overload]
    assert done.returncode == 1
    assert "python3 is missing here" in done.stderr


def test_what_profiles_name_is_looked_for() -> None:
    environments = [load_profile(name).environment for name in platforms()]
    named = {environment.python for environment in environments if environment is not None}
    assert len(named) > 2
    assert {python for python in named if python.startswith("/")} <= set(interpreters.PLACES)


def test_any_shell_takes_the_command() -> None:
    """Between single quotes nothing means anything to any shell but these."""
    for command in (agent_source.reading("python3"), agent_source.given("python3", b"pass")):
        assert not set("\\`!\n") & set(command)
        assert command.count("'") == 4
