"""Hosts of one's own: what is looked at before anything is made, and what is believed when the way to them breaks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from sweepstack.channel.pinned_keys import HostKeyChanged
from sweepstack.onbox.common.errors import (
    ConfigError,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.host.folder_platform import BOOT_DRILL
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from tests.oldest_python import oldest_python
from tests.simulators.host import Host

TAG = "sweepstack-a1b2c3-box-0-g1"
TWO_CARDS = """#!/bin/sh
case "$1" in
-q) echo "    CUDA Version                              : 12.2" ;;
*) printf 'NVIDIA GeForce RTX 4090, 24564\\nNVIDIA GeForce RTX 4090, 24564\\n' ;;
esac
"""


def platform_of(host: Host, folder: str = "") -> SshPlatform:
    found = load_platform(f"ssh:{host.address}{folder}")
    assert isinstance(found, SshPlatform)
    return found


def create(platform: SshPlatform, **resources: object) -> BoxRecord:
    return platform.create(BoxRequest(TAG, "box-0", 0.0, resources=resources), wait=Wait(60))


def boxes(host: Host) -> list[str]:
    return [path.name for path in host.home.glob(".local/share/sweepstack/local/boxes/[!.]*")]


def shim(host: Host, text: str) -> None:
    """A driver's tool on the host's PATH."""
    tool = host.folder / "bin" / "nvidia-smi"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(text)
    tool.chmod(0o755)
    host.say(PATH=f"{tool.parent}:/usr/local/bin:/usr/bin:/bin")


def test_cards_are_counted_before_anything_is_made(host: Host) -> None:
    shim(host, TWO_CARDS)
    platform = platform_of(host)
    with pytest.raises(RequestRefused, match=r"4× RTX 4090 asked for, and nvidia-smi shows NVIDIA GeForce RTX 4090"):
        create(platform, gpu={"name": ["RTX 4090"], "count": 4})
    with pytest.raises(RequestRefused, match="1× A100 asked for"):
        create(platform, gpu={"name": ["A100"], "count": 1})
    assert boxes(host) == []
    assert create(platform, gpu={"name": ["A100", "RTX 4090"], "count": 2}).phase is Phase.RUNNING


def test_a_card_that_is_divided_is_no_whole_card(host: Host) -> None:
    """The driver calls it by its whole name and memory, and a program on it sees one part."""
    listed = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0)\\n  MIG 1g.5gb Device 0: (UUID: MIG-0)\\n"
    listed += "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\\n"
    each = "NVIDIA A100-SXM4-40GB, 40960\\n"
    shim(host, f"#!/bin/sh\ncase $1 in -L) printf '{listed}' ;; *) printf '{each}{each}' ;; esac\n")
    with pytest.raises(RequestRefused, match="shows NVIDIA A100-SXM4-40GB MIG, NVIDIA A100-SXM4-40GB"):
        create(platform_of(host), gpu={"name": ["A100"], "count": 2})
    assert boxes(host) == []
    assert create(platform_of(host), gpu={"name": ["A100 MIG"], "count": 1}).phase is Phase.RUNNING


def test_a_driver_that_does_not_answer_is_no_host_without_cards(host: Host) -> None:
    shim(host, "#!/bin/sh\nexit 9\n")
    with pytest.raises(PlatformError, match="nvidia-smi is there and does not answer"):
        create(platform_of(host), gpu={"count": 1})
    assert boxes(host) == []


def test_no_driver_no_cards_and_a_full_disk_in_one_message(host: Host) -> None:
    host.say(PATH="/usr/bin:/bin")
    with pytest.raises(RequestRefused) as refused:
        create(platform_of(host), gpu={"count": 1}, disk="900000GB")
    assert "nvidia-smi shows none" in str(refused.value)
    assert "900000 GB of disk asked for" in str(refused.value)
    assert host.address in str(refused.value)
    assert boxes(host) == []


def test_a_box_of_a_host_has_its_three_tiers(host: Host) -> None:
    platform = platform_of(host)
    box = create(platform)
    channel = platform.channel(box.native_id, box.account)
    for tier in ("data", "scratch", "mnt/durable"):
        channel.write(f"{tier}/x", b"there")
        assert channel.read(f"{tier}/x") == b"there"
    assert box.endpoint == platform.endpoint


def test_boxes_lie_where_the_address_says(host: Host, tmp_path: Path) -> None:
    platform = platform_of(host, f"{tmp_path}/disk")
    box = create(platform)
    assert [path.name for path in (tmp_path / "disk" / "boxes").glob("[!.]*")] == [box.native_id]
    assert boxes(host) == []
    platform.destroy(box.native_id, box.account)


def test_another_machine_behind_the_address_is_stopped_at_its_host_key(host: Host, tmp_path: Path) -> None:
    platform = platform_of(host)
    box = create(platform)
    host.new_key()
    for ask in (platform.get, platform.destroy):
        with pytest.raises(HostKeyChanged, match="confirm host"):
            ask(box.native_id, box.account)
    assert boxes(host) == [box.native_id]


def test_another_disk_behind_the_same_host_is_another_account(host: Host) -> None:
    """Put back from an image, or the same host key on a new machine: what was there is not proved gone."""
    platform = platform_of(host)
    box = create(platform)
    store = host.home / ".local/share/sweepstack/local"
    store.rename(host.home / "aside")
    create(platform)
    with pytest.raises(WrongAccount, match=box.account):
        platform.get(box.native_id, box.account)


def test_a_verb_whose_answer_is_lost_is_of_unknown_outcome(host: Host) -> None:
    host.say(PATH="/usr/bin:/bin")
    platform = platform_of(host)
    box = create(platform)
    channel = platform.channel(box.native_id, box.account)
    channel.write("data/x", b"")
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    )
    channel.spawn([channel.python, "-c", stubborn], cwd="data", env={}, log="data/log")
    ends = time.monotonic() + 120
    while b"up" not in channel.read("data/log"):
        assert time.monotonic() < ends
        time.sleep(0.02)
    marked = host.home / ".local/share/sweepstack/local/boxes" / box.native_id / "ending.json"

    def cut() -> None:
        while not marked.exists():
            time.sleep(0.01)
        host.stop()

    threading.Thread(target=cut, daemon=True).start()
    with pytest.raises(OutcomeUnknown, match="destroy was sent, and its answer was lost"):
        platform.destroy(box.native_id, box.account)
    with pytest.raises(Unreachable):
        platform.get(box.native_id, box.account)
    host.start()
    ends = time.monotonic() + 120
    while platform.get(box.native_id, box.account).phase is not Phase.GONE:
        with contextlib.suppress(NotYetGone):  # the first one may go on over there
            platform.destroy(box.native_id, box.account)
        assert time.monotonic() < ends


def test_a_start_is_waited_for_here(host: Host) -> None:
    platform = platform_of(host)
    box = create(platform)
    platform.stop(box.native_id, box.account)
    with pytest.raises(PlatformError, match="stopped: nothing runs on it"):
        platform.channel(box.native_id, box.account).run(["true"], timeout=5)
    host.say(**{BOOT_DRILL: "1.5"})
    assert platform._caller is not None
    platform._caller.close()
    said: list[str] = []
    assert platform.start(box.native_id, box.account, wait=Wait(30, said.append)).phase is Phase.RUNNING


def test_a_platform_without_a_host_lists_nothing_and_says_what_is_missing() -> None:
    bare = load_platform("ssh")
    assert (bare.list_tagged(""), bare.list_volumes("")) == ([], [])
    with pytest.raises(ConfigError, match=r"boxes\.<name>\.host"):
        bare.account()


def test_only_hosts_have_addresses() -> None:
    with pytest.raises(ConfigError, match="has one account and no address"):
        load_platform("local:root@192.0.2.7")
    with pytest.raises(ConfigError, match="user@host:port"):
        load_platform("ssh:root@192.0.2.7:22/../etc")


def test_the_oldest_python_that_will_do_runs_all_of_it(host: Host, tmp_path: Path) -> None:
    """Whether its words exist there is for the box to show; what can be read from them: test_oldest_python.py."""
    oldest = oldest_python()
    if oldest is None:
        pytest.skip("no Python 3.8 on this machine")
    platform = platform_of(host)
    assert platform._caller is not None
    platform._caller._python = oldest
    box = create(platform)
    platform.stop(box.native_id, box.account)
    platform.start(box.native_id, box.account, wait=Wait(120))
    platform.destroy(box.native_id, box.account)
    assert platform.get(box.native_id, box.account).phase is Phase.GONE


def test_memory_cuda_and_cpus_are_looked_at_and_each_says_what_to_do(host: Host) -> None:
    shim(host, TWO_CARDS)
    gpu = {"name": ["RTX 4090"], "count": 1, "memory": "48GB+", "cuda": "12.4"}
    with pytest.raises(RequestRefused) as refused:
        create(platform_of(host), gpu=gpu, cpu=10_000, memory="9000TB+")
    lines = str(refused.value).splitlines()
    assert "nothing was made there" in lines[0]
    assert len(lines) == 5, lines
    for line, lack, fix in zip(
        lines[1:],
        (
            "1× RTX 4090 of 48 GB or more asked for",
            "CUDA 12.4 asked for, and its driver does 12.2 at most",
            "10000 CPUs",
            "9e+06 GB of memory asked for, and it may use ",
        ),
        ("change resources.gpu", "update that", "lower resources.cpu", "lower resources.memory"),
        strict=True,
    ):
        assert lack in line
        assert fix in line
    assert boxes(host) == []
    assert create(platform_of(host), gpu={"count": 2, "memory": "24GB+", "cuda": "12.2"}).phase is Phase.RUNNING


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own takes root to mount")
def test_inodes_are_looked_at_where_bytes_are_free(host: Host, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m,nr_inodes=500", "none", str(disk)], check=True)
    try:
        with pytest.raises(RequestRefused, match=r"no more files can be made at .*inodes are free, though 0\.2 GB are"):
            create(platform_of(host, f"{disk}/sweeps"))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_python_that_is_too_old_is_named(host: Host) -> None:
    old = host.folder / "bin" / "python3"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\nexit 127\n")
    old.chmod(0o755)
    host.say(PATH=f"{old.parent}:/usr/bin:/bin")
    with pytest.raises(PlatformError, match=r"can't run python3, which everything there needs.*`ln -s /opt/conda"):
        create(platform_of(host))
    assert boxes(host) == []
