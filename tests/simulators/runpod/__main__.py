"""Serves the simulated RunPod until it is interrupted."""

from __future__ import annotations

from tests.simulators.clock import VirtualClock
from tests.simulators.program import options, serve
from tests.simulators.runpod import CREATE, KEY, MENU, Boot, RunPodSim


def main() -> None:
    """Prints the URL and the key, one line each, then blocks."""
    parser = options("runpod", machines=True)
    parser.add_argument("--per-minute", type=int, help="quota of calls; none unless given")
    parser.add_argument("--boot-reads", type=int, default=1, help="how often a pod is read before it is ready")
    parser.add_argument("--boot-seconds", type=float, default=0.0, help="virtual seconds before a pod is ready")
    told = parser.parse_args()
    sim = RunPodSim(
        clock=VirtualClock(scale=told.scale),
        latency={CREATE: told.create_seconds},
        state=told.state,
        machines=told.machines,
        boot=Boot(reads=told.boot_reads, seconds=told.boot_seconds),
        per_minute=told.per_minute,
    )
    serve(sim, told, MENU, lambda url: f"RUNPOD_API_BASE_URL={url}\nRUNPOD_API_KEY={KEY}")


if __name__ == "__main__":
    main()
