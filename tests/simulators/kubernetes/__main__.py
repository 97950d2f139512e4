"""Starts a cluster and holds it until it is interrupted: `python -m tests.simulators.kubernetes --nodes 2`."""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
import time
from pathlib import Path

from tests.simulators.kubernetes import IMAGE, LATE_CLASS, STORAGE_CLASS, KubernetesCluster, missing


def main() -> None:
    """Prints the path of an administrator's kubeconfig first, then blocks. Its folder is taken away at the end."""
    words = argparse.ArgumentParser(prog="python -m tests.simulators.kubernetes", description=__doc__)
    words.add_argument("--nodes", type=int, default=1)
    words.add_argument("--gpus", type=int, default=0, help="of each node; they have no devices behind them")
    words.add_argument("--volumes", type=int, default=2, help="persistent volumes of the class `shared`")
    words.add_argument("--keep", type=Path, help="a folder that is kept: logs, volumes, keys")
    told = words.parse_args()
    if why := missing():
        raise SystemExit(why)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kubernetes-") as made,
        KubernetesCluster.start((told.keep or Path(made)) / "c", nodes=told.nodes, gpus=told.gpus) as cluster,
    ):
        volumes = [cluster.volume(f"v{number}") for number in range(1, told.volumes + 1)]
        print(f"KUBECONFIG={cluster.kubeconfig}", flush=True)
        print(f"server {cluster.server}, image {IMAGE}, storage classes {STORAGE_CLASS} and {LATE_CLASS}")
        print("".join(f"volume {one.name}: {one.folder}\n" for one in volumes), end="")
        print(f"up in {time.monotonic() - began:.1f} s; Ctrl-C ends it", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
