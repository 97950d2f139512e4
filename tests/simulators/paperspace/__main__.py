"""Serves the simulated Paperspace until it is interrupted."""

from __future__ import annotations

from tests.simulators.clock import VirtualClock
from tests.simulators.paperspace import AT_ONCE, CREATE, KEY, MENU, PaperspaceSim, Times
from tests.simulators.program import options, serve


def main() -> None:
    """Prints the URL and the key, one line each, then blocks."""
    parser = options("paperspace", machines=False)
    parser.add_argument("--limits", action="store_true", help="so many requests in a minute, no more")
    parser.add_argument("--at-once", action="store_true", help="machines come up and end at once")
    told = parser.parse_args()
    sim = PaperspaceSim(
        clock=VirtualClock(scale=told.scale),
        latency={CREATE: told.create_seconds},
        times=AT_ONCE if told.at_once else Times(),
        limits=told.limits,
    )
    serve(sim, told, MENU, lambda url: f"PAPERSPACE_API_BASE_URL={url}\nPAPERSPACE_API_KEY={KEY}")


if __name__ == "__main__":
    main()
