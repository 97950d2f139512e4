"""Copies from and to a folder of a bucket with rclone (1.60 or newer), and reads back what it copied.

A success of rclone proves little: what was copied is read back from the bucket and compared byte by byte.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.processes import signal_group
from sweepstack.onbox.runner.environment import redacted

CALL_SECONDS = 6 * 3600.0
LOOK_SECONDS = 0.1
NOTHING_THERE = 3
"""rclone's exit code for a folder that is not there; a bucket has no empty folders."""
FLAGS = ("--config=/notfound", "--retries=2", "--low-level-retries=2", "--contimeout=20s", "--timeout=60s")


class RemoteFailed(SweepstackError, OSError):
    """A request to the bucket failed. The message has rclone's output, without secrets."""


class RemoteStopped(SweepstackError, OSError):
    """The runner is ending: the next runner begins the copy again."""


class Remote:
    """The source of one mount. `env`: the variables of the box's processes, with the keys. `stop`: ends a running
    rclone once it is set. Safe to share between threads.
    """

    def __init__(self, mount: Mapping[str, Any], env: Mapping[str, str], hidden: Sequence[str], stop: threading.Event):
        self.source, self._hidden, self._stop = str(mount["source"]), list(hidden), stop
        self.root = "store:" + self.source[len("s3://") :].rstrip("/")
        self.endpoint = endpoint = str(mount.get("endpoint") or "")
        store = {
            "TYPE": "s3",
            "PROVIDER": "Other" if endpoint else "AWS",
            "ENV_AUTH": "true",
            "NO_CHECK_BUCKET": "true",
            "REGION": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
            **({"ENDPOINT": endpoint} if endpoint else {}),
        }
        self.env = {**env, **{f"RCLONE_CONFIG_STORE_{name}": value for name, value in store.items()}}
        self.env.pop("AWS_CA_BUNDLE", None)  # Debian's rclone ends with an error where it is set
        self.env.pop("RCLONE_CONFIG", None)

    def call(self, *words: str, seconds: float = CALL_SECONDS, allow: Sequence[int] = (0,)) -> tuple[int, bytes]:
        """Runs rclone; blocks. Returns its exit code and stdout. Raises RemoteFailed, RemoteStopped."""
        program = shutil.which("rclone", path=self.env.get("PATH"))
        if not program:
            raise RemoteFailed(
                f"{self.source} needs rclone, and it is not on this box's PATH. Next: install it (apt-get install -y "
                "rclone), or let job.setup do that, then `pulumi up`"
            )
        process = subprocess.Popen(
            [program, *words, *FLAGS],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        cut = threading.Timer(seconds, signal_group, (process.pid, signal.SIGKILL))
        watch = threading.Thread(target=self._watch, args=(process,), daemon=True)
        cut.start()
        watch.start()
        try:
            said, complaint = process.communicate()
        finally:
            cut.cancel()
        if self._stop.is_set():
            raise RemoteStopped(f"{self.source}: the runner was stopped")
        if process.returncode not in allow:
            lines = redacted(complaint.decode("utf-8", "replace"), self._hidden).strip().splitlines()
            telling = [line for line in lines if "ERROR" in line or "Failed" in line] or lines or ["it said nothing"]
            last = telling[-1]
            raise RemoteFailed(f"{self.source}: rclone {words[0]} ended with {process.returncode}: {last[-300:]}")
        return process.returncode, said

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            if self._stop.wait(LOOK_SECONDS):
                signal_group(process.pid, signal.SIGKILL)
                return

    def at(self, path: str) -> str:
        """A path below the source, in rclone's form."""
        return f"{self.root}/{path}" if path else self.root

    def fetch(self, path: str, folder: Path) -> bool:
        """Copies the files below `path` into `folder`, and compares the two byte by byte. False when there are none."""
        code, said = self.call("lsf", "-R", "--files-only", self.at(path), allow=(0, NOTHING_THERE))
        if code or not said.strip():
            return False
        folder.mkdir(parents=True, exist_ok=True)
        self.call("copy", self.at(path), str(folder))
        self.call("check", "--one-way", "--download", self.at(path), str(folder))
        return True

    def push(self, folder: Path, path: str, *, last: str = "") -> None:
        """Copies a folder to `path` and reads it back, byte by byte. `last`: a file of it that is written after all
        others were read back: where it is, they are complete. Idempotent."""
        without = ["--exclude", f"/{last}"] if last else []
        self.call("copy", str(folder), self.at(path), *without)
        self.call("check", "--one-way", "--download", str(folder), self.at(path), *without)
        if last:
            self.call("copyto", str(folder / last), self.at(f"{path}/{last}"))
            if self.read(f"{path}/{last}") != (folder / last).read_bytes():
                raise RemoteFailed(f"{self.source}: {path}/{last} reads back differently")

    def read(self, path: str) -> bytes:
        """The content of one small file."""
        return self.call("cat", self.at(path))[1]

    # -- what sets of checkpoints are made with: see `checkpoint_sets.Store`

    def tree(self, path: str) -> dict[str, int]:
        """The files below `path` → their sizes; empty when there are none."""
        words = ("lsf", "-R", "--files-only", "--format", "sp", "--separator", "/")
        code, said = self.call(*words, self.at(path), allow=(0, NOTHING_THERE))
        lines = [] if code else said.decode("utf-8", "replace").splitlines()
        return {name: int(size) for size, _, name in (line.partition("/") for line in lines if line)}

    def write(self, path: str, data: bytes) -> None:
        """Writes one small object, and reads it back."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.call("copyto", file.name, self.at(path))
        if self.read(path) != data:
            raise RemoteFailed(f"{self.source}: {path} reads back differently")

    def send(self, folder: Path, path: str) -> None:
        """Copies the files of a folder, also those that links point to, whatever is there. Reads nothing back."""
        self.call("copy", "--copy-links", "--no-check-dest", str(folder), self.at(path))

    def take(self, path: str, names: Collection[str], folder: Path) -> None:
        """Copies these files below `path` into a folder. Compares nothing; one that is not there is left out."""
        self._with_names("copy", names, "--no-traverse", self.at(path), str(folder))

    def copy_there(self, path: str, names: Collection[str], to: str) -> None:
        """Copies these files to another place of the bucket; the store does it, and no byte comes here."""
        self._with_names("copy", names, "--no-traverse", self.at(path), self.at(to))

    def remove(self, path: str, names: Collection[str]) -> None:
        """Takes these files away for good."""
        self._with_names("delete", names, self.at(path))

    def _with_names(self, verb: str, names: Collection[str], *words: str) -> None:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(f"{name}\n" for name in names))
            file.flush()
            self.call(verb, "--files-from-raw", file.name, *words)

    def listing(self, path: str, include: str) -> list[str]:
        """The files below `path` that match `include`, as paths relative to it; empty when there are none."""
        code, said = self.call(
            "lsf", "-R", "--files-only", "--include", include, self.at(path), allow=(0, NOTHING_THERE)
        )
        return [] if code else [line for line in said.decode("utf-8", "replace").splitlines() if line]


def why_no_fuse(path: str) -> str:
    """Why FUSE can't mount on this box; "" when it can, as far as can be seen without trying."""
    device = "/dev/fuse"
    if not os.path.exists(device):
        return f"there is no {device} on this box (a container without that device can't mount a bucket)"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"{device} can't be opened by this user"
    if not any(shutil.which(name, path=path) for name in ("fusermount3", "fusermount")):
        return "fusermount is not on this box's PATH (apt-get install -y fuse3)"
    return ""
