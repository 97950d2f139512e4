"""What a proved pull costs beyond a plain one: `python -m bench.pull_bench [GB] [files]`.

The same sealed cell behind the same sshd on loopback, pulled by us, and by `rsync -a --fsync` over the same kind of
connection with `sha256sum -c` after it. Interleaved rounds, so that a noisy neighbour hits both; ratios compare
medians. Everything it writes lies in one temporary folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.compared import compared
from sweepstack.channel.ssh import route as ssh_config
from sweepstack.evidence.manifest import MANIFEST
from sweepstack.evidence.pull import pull_cell
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.registry import load_platform
from tests.simulators.host import Host

IDENTITY, CELL = "abcdefghjk", "a"
SMALL_BYTES = 4_096
BLOCK = 1 << 24
LIMIT = 1.15


def measure(gigabytes: float = 4.0, files: int = 10_000, rounds: int = 3) -> dict[str, Any]:
    """Seconds of both ways, for one large file and for many small ones."""
    with tempfile.TemporaryDirectory(prefix="sweepstack-bench-") as folder:
        base = Path(folder)
        host = Host(base / "host")
        before = dict(os.environ)
        os.environ |= {"SWEEPSTACK_SSH_KEY": str(host.key), "XDG_DATA_HOME": str(base / "data")}
        os.environ[ssh_config.CONFIG_VARIABLE] = "none"
        try:
            return {
                name: _compared(base / name, host, count, size, rounds)
                for name, count, size in (
                    ("small", files, SMALL_BYTES),
                    ("large", 1, int(gigabytes * 10**9)),
                )
            }
        finally:
            os.environ.clear()
            os.environ.update(before)
            host.stop()


def _compared(base: Path, host: Host, count: int, size: int, rounds: int) -> dict[str, Any]:
    platform = load_platform(f"ssh:{host.address}{base}/store")
    box = platform.create(BoxRequest("bench", "box-0", 0.0), wait=Wait(60))
    channel = platform.channel(box.native_id, box.account)
    sealed = Path(channel.absolute(f"{box_layout.DURABLE}/{box_layout.sealed_dir(IDENTITY, CELL)}"))
    seal(sealed, box.native_id, count, size)
    ways: dict[str, Callable[[Path], None]] = {
        "ours": lambda to: _ours(channel, to),
        "rsync": lambda to: _rsync(host, sealed, to),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 else list(reversed(ways)):
            to = base / "to"
            to.mkdir()
            os.sync()
            begun = perf_counter()
            ways[name](to)
            took[name].append(perf_counter() - begun)
            shutil.rmtree(to)
    platform.destroy(box.native_id, box.account)
    return {
        "files": count,
        "bytes": count * size,
        "rounds": rounds,
        **compared(took, "ours", "rsync"),
        "limit": LIMIT,
    }


def seal(folder: Path, native_id: str, count: int, size: int) -> None:
    """What a runner leaves behind: files in folders of a hundred, and their manifest."""
    entries = []
    for number in range(count):
        path = folder / (f"out/{number // 100:03d}/{number:05d}.bin" if count > 1 else "out/checkpoint.bin")
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with path.open("wb") as handle:
            left = size
            while left:
                block = os.urandom(min(left, BLOCK))
                left -= len(block)
                digest.update(block)
                handle.write(block)
        entry = {"path": str(path.relative_to(folder)), "size": size, "sha256": digest.hexdigest()}
        entries.append({**entry, "role": "artifact"})
    now = datetime.now(UTC).isoformat()
    manifest = {
        "schema": 1,
        "identity": IDENTITY,
        "box": "box-0",
        "native_id": native_id,
        "generation": 1,
        "cell": CELL,
        "attempt": 1,
        "config_digest": digest_of({"name": CELL, "params": {}}),
        "params": {},
        "code": digest_of("code"),
        "argv": ["true"],
        "started_at": now,
        "sealed_at": now,
        "environment": {},
        "files": entries,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    sums = "".join(f"{entry['sha256']}  {entry['path']}\n" for entry in entries)
    (folder.parent / "sums").write_text(sums)


def _ours(channel: Channel, to: Path) -> None:
    store = EvidenceStore.found(f"file://{socket.gethostname()}{to}", IDENTITY, "bench", "bench")
    found = pull_cell(channel, IDENTITY, CELL, store)
    if found.state != "pulled":
        raise RuntimeError(f"not pulled: {found}")


def _rsync(host: Host, sealed: Path, to: Path) -> None:
    ssh = f"ssh -F none -i {host.key} -p {host.port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    options = ["-a", "--fsync", "-e", f"{ssh} -o LogLevel=ERROR -l {host.user}"]
    _done(["rsync", *options, f"127.0.0.1:{shlex.quote(str(sealed))}/", f"{to}/cell/"])
    _done(["sha256sum", "--quiet", "-c", str(sealed.parent / "sums")], cwd=to / "cell")


def _done(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    print(json.dumps(measure(*given[:1], *[int(word) for word in given[1:3]]), indent=2))
