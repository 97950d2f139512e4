"""Serves the simulated Lambda Cloud until it is interrupted."""

from __future__ import annotations

from tests.simulators.clock import VirtualClock
from tests.simulators.lambda_api import AT_ONCE, KEY, LAUNCH, MENU, LambdaSim, Times
from tests.simulators.program import options, serve


def main() -> None:
    """Prints the URL and the key, one line each, then blocks."""
    parser = options("lambda_api", machines=True)
    parser.add_argument("--limits", action="store_true", help="one request a second, one launch in 12 seconds")
    parser.add_argument("--at-once", action="store_true", help="instances boot and end at once")
    told = parser.parse_args()
    sim = LambdaSim(
        clock=VirtualClock(scale=told.scale),
        latency={LAUNCH: told.create_seconds},
        state=told.state,
        machines=told.machines,
        times=AT_ONCE if told.at_once else Times(),
        limits=told.limits,
    )
    serve(sim, told, MENU, lambda url: f"LAMBDA_API_BASE_URL={url}\nLAMBDA_API_KEY={KEY}")


if __name__ == "__main__":
    main()
