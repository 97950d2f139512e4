"""What a new set of checkpoints sends to a bucket where a file of eight has changed: `python -m bench.sets_bench`.

With the real rclone and a real S3 server on this machine; a relay between them counts the bytes. The baseline is what
has changed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

from sweepstack.onbox.runner.checkpoint_sets import Sets
from sweepstack.onbox.runner.rclone import Remote
from tests.s3.server import S3Server

FILES = 8
LIMIT = 1.01


class Relay:
    """Hands connections on to a port of this machine. `up`: the bytes that went there."""

    def __init__(self, port: int) -> None:
        self.up, self._to = 0, port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            here = self._listener.accept()[0]
            there = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._hand_on, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(there, here, False), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
                if up:
                    with self._lock:
                        self.up += len(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def measure(total_bytes: int = 64_000_000) -> dict[str, Any]:
    """Copies a set, changes one file, copies the next one, and one more where only a name has changed."""
    with tempfile.TemporaryDirectory(prefix="sweepstack-sets-") as name:
        server = S3Server(Path(name) / "server")
        try:
            server.start()
            server.sdk().create_bucket(Bucket="bench")
            relay = Relay(int(server.url.rpartition(":")[2]))
            mount = {"source": "s3://bench/ckpt", "endpoint": f"http://127.0.0.1:{relay.port}"}
            return _measured(
                Path(name) / "tier", Remote(mount, _env(server), [], threading.Event()), relay, total_bytes
            )
        finally:
            server.stop()


def _env(server: S3Server) -> dict[str, str]:
    env = {**os.environ, **server.environment()}
    return {key: value for key, value in env.items() if not key.startswith("AWS_ENDPOINT")}


def _measured(tier: Path, remote: Remote, relay: Relay, total_bytes: int) -> dict[str, Any]:
    folder, size = tier / "a" / ("0" * 16), total_bytes // FILES
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"shard-{number}").write_bytes(os.urandom(size))
    sets = Sets(remote, "bench", "a", folder, "box")
    found: dict[str, Any] = {"bytes": total_bytes, "changed": size, "limit": LIMIT, "steps": {}}

    def step(what: str, changed: int) -> None:
        begin, began = relay.up, perf_counter()
        assert sets.copy(0.0, 0.0)
        found["steps"][what] = {"seconds": perf_counter() - began, "up": relay.up - begin, "changed": changed}
        sets.prune()

    step("first set", total_bytes)
    (folder / "shard-0").write_bytes(os.urandom(size))
    step("one file changed", size)
    os.replace(folder / "shard-1", folder / "renamed")
    (folder / "shard-2").write_bytes(os.urandom(size))
    step("one changed, one renamed", size)
    found["ratio"] = max(one["up"] / one["changed"] for one in found["steps"].values())
    found["ok"] = found["ratio"] <= LIMIT
    return found


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) * 1_000_000 for word in sys.argv[1:])), indent=2))
