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
from dataclasses import dataclass
from typing import Any

from bench.renting_world import CREATE_SECONDS, PER_MINUTE, Step, world

BOXES = 100
MOST_BYTES = 300_000_000
COMMANDS = ("preview", "up", "refresh", "clear", "destroy")


@dataclass(frozen=True)
class Platform:
    """`scale`: platform's seconds in one of ours. `list_route`: that of the list of boxes."""

    name: str
    scale: float
    page: int
    """Boxes that one answer lists: more of them are more calls for one list."""
    list_route: str
    create_route: str
    needs: str
    """The calls that the ideal counts."""

    def ideal(self, command: str, boxes: int) -> float:
        """Seconds: see `needs`."""
        if self.name == "runpod":
            # Account, catalogue, list of what is there, a create for each box, a list that shows them all at work; and
            # at the end account, list, for each box its delete and the look that does not find it, a list without them.
            calls = 3 + boxes + 1 if command == "up" else 2 + 2 * boxes + 1
            return (calls - 1) // PER_MINUTE * 60.0 + (CREATE_SECONDS if command == "up" else 0.0)
        # The last box's create, and the three looks in which it comes up; its delete, and the look at it and the list.
        every = CREATE_EVERY if command == "up" else DELETE_EVERY
        looks = 3 * LOOK_EVERY + CREATE_SECONDS if command == "up" else 2 * LOOK_EVERY
        return (boxes - 1) * every + looks


CREATE_EVERY, DELETE_EVERY, LOOK_EVERY = 4.5, 3.0, 2.0
"""vast.ai: seconds between two creates, two deletes, two looks, of one account."""
PLATFORMS = (
    Platform("runpod", 3.0, 100, "GET /v2/pods", "POST /v2/pods", f"{PER_MINUTE} requests a minute, all together"),
    Platform(
        "vastai",
        4.0,
        25,
        "GET /api/v1/instances/",
        "PUT /api/v0/asks/{id}/",
        f"a create in {CREATE_EVERY:g} s, a destroy in {DELETE_EVERY:g} s",
    ),
)


def measure(boxes: int = BOXES, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """By platform: each command's seconds, ideal, calls by route, and the plugin's memory and CPU. Raises RuntimeError
    when boxes are missing after an up, or left after a destroy."""
    return {one.name: _of(one, boxes) for one in PLATFORMS if one.name in only or not only}


def _of(platform: Platform, boxes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"boxes": boxes, "scale": platform.scale, "limits": platform.needs, "commands": {}}
    total: dict[str, int] = {}
    with world(platform.name, boxes, platform.scale) as stack:
        for command in COMMANDS:
            waits = command in ("up", "destroy")
            step = stack.step(command, scaled=command not in ("preview", "refresh"))
            _must_bill(platform, command, step, boxes)
            for route, count in step.calls.items():
                total[route] = total.get(route, 0) + count
            found["commands"][command] = {
                "seconds": step.seconds,
                "ideal": platform.ideal(command, boxes) if waits else None,
                "calls": step.calls,
                "lists": step.calls.get(platform.list_route, 0),
                "peak_bytes": step.peak,
                "cpu_seconds": round(step.cpu, 2),
            }
    for command in ("up", "destroy"):
        one = found["commands"][command]
        one["ratio"] = one["seconds"] / one["ideal"]
    found["calls"] = dict(sorted(total.items()))
    found["pages"] = -(-boxes // platform.page)
    found["calls_per_box"] = sum(total.values()) / boxes
    found["peak_bytes"] = max(one["peak_bytes"] for one in found["commands"].values())
    return found


def _must_bill(platform: Platform, command: str, step: Step, boxes: int) -> None:
    """A figure of something that did not happen is none."""
    expected = 0 if command in ("preview", "destroy") else boxes
    if step.living != expected:
        raise RuntimeError(f"{platform.name}: {step.living} boxes bill after {command}, not {expected}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else BOXES
    print(json.dumps(measure(count, tuple(sys.argv[2:])), indent=2))
