"""What renting many boxes takes: `python -m bench.renting_bench [boxes] [adapter …]`.

Commands on 100 boxes at once against the simulated platforms, whose limits are on: preview, up, a preview of what is
there, the up that clears it, destroy. Each is a plugin of its own, as with the engine. Against each stands the ideal:
the least time in which the platform, with its latency and its limits, takes the calls that the protocol needs. Time is
scaled, on the platform's clock and in the plugin's waits alike; seconds are the platform's. Previews wait for nothing
and are not scaled.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.renting_world import CREATE_SECONDS, Step, world
from tests.simulators.rental import rental, rentals

BOXES = 100
COMMANDS = ("preview", "up", "refresh", "clear", "destroy")


def measure(boxes: int = BOXES, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """By platform: each command's seconds, ideal, calls by route, and the plugin's memory and CPU. Raises RuntimeError
    when boxes are missing after an up, or left after a destroy."""
    return {adapter: _of(adapter, boxes) for adapter in rentals() if adapter in only or not only}


def _of(adapter: str, boxes: int) -> dict[str, Any]:
    its = rental(adapter)
    found: dict[str, Any] = {"boxes": boxes, "scale": its.scale, "limits": its.limits, "commands": {}}
    total: dict[str, int] = {}
    with world(adapter, boxes, its.scale) as stack:
        for command in COMMANDS:
            waits = command in ("up", "destroy")
            step = stack.step(command, scaled=command not in ("preview", "refresh"))
            _must_bill(adapter, command, step, boxes)
            for route, count in step.calls.items():
                total[route] = total.get(route, 0) + count
            found["commands"][command] = {
                "seconds": step.seconds,
                "ideal": its.least_seconds(command, boxes, CREATE_SECONDS) if waits else None,
                "calls": step.calls,
                "lists": step.calls.get(its.list, 0),
                "peak_bytes": step.peak,
                "cpu_seconds": round(step.cpu, 2),
            }
    for command in ("up", "destroy"):
        one = found["commands"][command]
        one["ratio"] = one["seconds"] / one["ideal"]
    found["calls"] = dict(sorted(total.items()))
    found["pages"] = -(-boxes // its.page)
    found["calls_per_box"] = sum(total.values()) / boxes
    found["peak_bytes"] = max(one["peak_bytes"] for one in found["commands"].values())
    return found


def _must_bill(adapter: str, command: str, step: Step, boxes: int) -> None:
    """A figure of something that did not happen is none."""
    expected = 0 if command in ("preview", "destroy") else boxes
    if step.living != expected:
        raise RuntimeError(f"{adapter}: {step.living} boxes bill after {command}, not {expected}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else BOXES
    print(json.dumps(measure(count, tuple(sys.argv[2:])), indent=2))
