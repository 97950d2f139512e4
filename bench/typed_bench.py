"""What bringing a cell of many small files home costs: `python -m bench.typed_bench [files] [rounds]`.

`sweepctl pull --verify`, and `sweepctl pull` and then `sweepctl verify`, as a person types them, of one cell that
trained on a host behind a real sshd on loopback, against `rsync -a` and `sha256sum -c` of the same folder. Interleaved
rounds, each into empty folders; the ratio compares medians. Of ours, what a command takes before it copies or reads
anything is told beside: `status`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.compared import compared
from tests.engine.commands import ok
from tests.rented.host_stack import HostStack

LIMIT = 2.0
JOB = """\
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--out", type=pathlib.Path)
out = parser.parse_known_args()[0].out
(out / "metrics.json").write_text('{{"loss": 1.0}}')
for number in range({files}):
    path = out / f"{{number // 100:03d}}" / f"{{number:05d}}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(os.urandom(4096))
"""


def measure(files: int = 1_000, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds of both in one command (`ours`), `pull`, `verify`, these two (`two`), `rsync` and
    `status`; the ratio of ours, and of the two commands."""
    took: dict[str, list[float]] = {way: [] for way in ("ours", "pull", "verify", "two", "rsync", "status")}
    with tempfile.TemporaryDirectory(prefix="typed-bench-") as folder:
        stack = HostStack(Path(folder) / "sweep", cells=("seed0",))
        try:
            (stack.job / "train.py").write_text(JOB.format(files=files))
            stack.write_config()
            stack.edit_config(lambda sweep: sweep.update(artifacts={"metrics.json": {"load": "json"}}))
            stack.init()
            ok(stack.up())
            stack.wait_done()
            stack.wait_idle()
            for number in range(rounds + 1):
                forget(stack)
                once = {name: ok(stack.sweepctl(name)).seconds for name in ("pull", "verify", "status")}
                once |= {"two": once["pull"] + once["verify"], "rsync": _plainly(stack)}
                forget(stack)
                once["ours"] = ok(stack.sweepctl("pull", "--verify")).seconds
                if number:  # the first round finds no byte code and a cold cache
                    for way, seconds in once.items():
                        took[way].append(seconds)
        finally:
            stack.end()
    return {
        "files": files,
        "rounds": rounds,
        "two": compared({way: took[way] for way in ("two", "rsync")}, "two", "rsync"),
        **compared(took, "ours", "rsync"),
        "limit": LIMIT,
    }


def forget(stack: HostStack) -> None:
    """Nothing was pulled or verified yet."""
    for name in ("cells", "receipts"):
        shutil.rmtree(stack.evidence / name, ignore_errors=True)
    (stack.evidence / "records" / "latest-receipt").unlink(missing_ok=True)


def _plainly(stack: HostStack) -> float:
    host, sealed, to = stack.host, stack.durable_cell("seed0"), stack.base / "to"
    sums = stack.base / "sums"
    entries = json.loads((sealed / "manifest.json").read_text())["files"]
    sums.write_text("".join(f"{entry['sha256']}  {entry['path']}\n" for entry in entries))
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    ssh = f"ssh -F none -i {host.key} -p {host.port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    way = f"{ssh} -o LogLevel=ERROR -l {host.user}"
    begun = perf_counter()
    subprocess.run(["rsync", "-a", "-e", way, f"127.0.0.1:{sealed}/", f"{to}/"], check=True)
    subprocess.run(["sha256sum", "--quiet", "-c", str(sums)], cwd=to, check=True)
    return perf_counter() - begun


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:])), indent=2))
