"""What proving checkpoints costs beyond hashing them: `python -m bench.verify_bench [GB] [files]`.

The same warm files, the same number of worker processes: a plain `hashlib.file_digest` loop, then the restricted
reader (digest, zip CRCs, structure, finite numbers), then torch.load where torch is at hand. Interleaved rounds, so
that a noisy neighbour hits all; the ratio compares medians. Everything it writes lies in one temporary folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from sweepstack.loaders.base import PlainSpec, Reader
from sweepstack.loaders.pool import FileToRead, cores, read_all, worker_environment
from tests.unit.evidence.torchzip import save, tensor

TENSORS = 64
_PLAIN = """
import hashlib, sys
for line in sys.stdin:
    with open(line.rstrip("\\n"), "rb") as handle:
        print(hashlib.file_digest(handle, "sha256").hexdigest())
"""


def make(folder: Path, total_bytes: int, files: int) -> list[Path]:
    """Writes `files` checkpoints of random float32 tensors, `total_bytes` in all."""
    numbers = np.random.default_rng(0)
    count = total_bytes // files // TENSORS // 4
    block = numbers.standard_normal(count + TENSORS, dtype=np.float32)
    paths = []
    for index in range(files):
        block[:TENSORS] = numbers.standard_normal(TENSORS, dtype=np.float32)
        layers = {f"layer{n}.weight": tensor(block[n : n + count]) for n in range(TENSORS)}
        path = folder / f"{index}.pt"
        save({"model": layers, "epoch": index}, path)
        paths.append(path)
    return paths


def hash_plainly(paths: list[Path], workers: int) -> dict[str, str]:
    """The baseline: each worker hashes its share with `hashlib.file_digest`."""
    shares = [paths[index::workers] for index in range(workers)]

    def hashed(share: list[Path]) -> list[str]:
        given = "".join(f"{path}\n" for path in share)
        command = [sys.executable, "-I", "-c", _PLAIN]
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, text=True, env=worker_environment(), check=True
        )
        return done.stdout.split()

    found: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        for share, digests in zip(shares, pool.map(hashed, shares), strict=True):
            found |= dict(zip(map(str, share), digests, strict=True))
    return found


def read(paths: list[Path], expected: dict[str, str], reader: Reader, workers: int) -> dict[str, float]:
    """Proves all files good; seconds by stage, summed over the workers. Raises when one is not."""
    jobs = [
        FileToRead(str(path), PlainSpec("torch", ("model", "epoch")), expected[str(path)], path.stat().st_size)
        for path in paths
    ]
    stages: dict[str, float] = {}
    for job, result in read_all(jobs, reader=reader, workers=workers):
        if not result.ok:
            raise RuntimeError(f"{job.path}: {result.reasons}")
        for stage, seconds in result.stages.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    return stages


def measure(total_bytes: int, *, files: int = 8, rounds: int = 3) -> dict[str, Any]:
    """Seconds (medians of `rounds`) for each way, their ratio, and the restricted reader's seconds by stage."""
    workers = cores()
    folder = Path(tempfile.mkdtemp(prefix="sweepstack-verify-bench-"))
    try:
        paths = make(folder, total_bytes, files)
        times: dict[str, list[float]] = {"plain": [], "restricted": []}
        stages: dict[str, dict[str, float]] = {}
        os.sync()  # else the kernel writes them out while the rounds are measured
        expected = hash_plainly(paths, workers)  # warms the files
        readers: list[Reader] = ["restricted"]
        if importlib.util.find_spec("torch"):
            readers.append("torch")
            times["torch"] = []
        for _ in range(rounds):
            begin = perf_counter()
            hash_plainly(paths, workers)
            times["plain"].append(perf_counter() - begin)
            for reader in readers:
                begin = perf_counter()
                stages[reader] = read(paths, expected, reader, workers)
                times[reader].append(perf_counter() - begin)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    median = {way: statistics.median(values) for way, values in times.items()}
    return {
        "bytes": total_bytes,
        "files": files,
        "workers": workers,
        "seconds": {way: round(value, 3) for way, value in median.items()},
        "max_seconds": {way: round(max(values), 3) for way, values in times.items()},
        "ratio": round(median["restricted"] / median["plain"], 3),
        "torch_ratio": round(median["torch"] / median["plain"], 3) if "torch" in median else None,
        "worker_seconds_by_stage": {way: {k: round(v, 3) for k, v in found.items()} for way, found in stages.items()},
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    arguments = [float(value) for value in sys.argv[1:]]
    size = int((arguments[0] if arguments else 8) * 1e9)
    print(json.dumps(measure(size, files=int(arguments[1]) if len(arguments) > 1 else 8), indent=2))
