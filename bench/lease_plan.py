"""A month of a box, drawn from a seed: when it is needed, when a laptop looks, and what goes wrong meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.lease_platforms import NAMES

HOUR, DAY = 3600.0, 86400.0
MONTH = 30 * DAY
FOR_EVER = float("inf")
BEGUN = 300.0
"""Seconds: a queue that can't even begin is the first look's to say."""
LEASES = (600.0, HOUR, 2 * HOUR, 2 * HOUR, 2 * HOUR, 6 * HOUR, DAY)
WEIGHTS = (7, 1, 7, 4, 1)
"""Of `NAMES`."""
STORIES = {
    "nothing goes wrong": (),
    "the platform restarts the box": ("reboot",),
    "it is started again after it stopped": ("started",),
    "the wall clock jumps": ("jump",),
    "the box has no key": ("keyless",),
    "the key is refused": ("refused",),
    "RunPod's REST refuses the keys of pods": ("second",),
    "the network of the box is cut": ("cut",),
    "the platform is busy or broken": ("busy",),
    "a stop is answered and not done": ("ignored",),
    "the answer to the stop is lost": ("lost",),
    "the runner is killed, its cells work on": ("killed",),
    "the runner is killed, its cells hang": ("killed", "hung"),
    "a cell hangs": ("hung",),
    "there is no room to start a cell": ("blocked",),
    "the journal can't be written": ("full",),
    "no file and no process can be opened": ("starved",),
    "several of these": ("several",),
}
ONLY = {
    "keyless": ("runpod", "vastai"),
    "second": ("runpod",),
    "cut": ("runpod", "vastai"),
    "lost": ("runpod", "vastai"),
    "refused": ("runpod", "vastai", "autodl"),
    "busy": ("runpod", "vastai", "autodl"),
    "ignored": ("runpod", "vastai", "autodl"),
    "started": ("runpod", "vastai"),
    "reboot": ("runpod", "vastai", "runpod with a volume"),
}
"""Where a fault makes sense; elsewhere nothing is there that it could befall. A host that is not rented here starts
nothing of ours by itself: `HOST_REBOOT`."""
LASTING = ("refused", "cut", "busy", "ignored", "full", "starved")
STYLES = ("cpu", "cpu", "cpu", "gpu", "writes")
"""How a cell that works shows it: it computes, it waits for a GPU that computes, or it writes a line now and then."""


@dataclass(frozen=True, order=True)
class Happening:
    """`what` at a moment, in seconds since the month began."""

    at: float
    what: str
    value: float = 0.0


@dataclass(frozen=True)
class Month:
    """See the module. `works`: until when the cells work; `hangs`: from when on they do not, if they do before;
    `looks`: the laptop's, which then is gone; `happenings`: in order."""

    seed: int
    platform: str
    story: str
    faults: tuple[str, ...]
    lease: float
    works: float
    style: str
    looks: tuple[float, ...]
    happenings: tuple[Happening, ...] = ()
    detail: int = 0
    hangs: float | None = None
    keyless: bool = False


def month(seed: int) -> Month:
    """The month of a seed: the same on every machine."""
    dice = random.Random(f"month {seed}")
    platform = dice.choices(NAMES, WEIGHTS)[0]
    story = dice.choice([name for name, faults in STORIES.items() if all(_fits(one, platform) for one in faults)])
    faults = STORIES[story]
    if faults == ("several",):
        menu = sorted({one for some in STORIES.values() for one in some if one != "several" and _fits(one, platform)})
        faults = tuple(sorted(dice.sample(menu, min(len(menu), dice.randint(2, 4)))))
    works = dice.choice((dice.uniform(0.2, 6) * HOUR, dice.uniform(0.2, 12) * DAY))
    looks = _looks(dice, works)
    need = max(works, looks[-1])
    found = [Happening(at, "look") for at in looks]
    for one in faults:
        found += _happenings(dice, one, works, need)
    return Month(
        seed,
        platform,
        story,
        faults,
        dice.choice(LEASES),
        works,
        dice.choice(STYLES),
        looks,
        tuple(sorted(found)),
        dice.randrange(60),
        works * dice.uniform(0.1, 0.9) if "hung" in faults else None,
        "keyless" in faults,
    )


def _fits(fault: str, platform: str) -> bool:
    return platform in ONLY.get(fault, NAMES)


def _looks(dice: random.Random, works: float) -> tuple[float, ...]:
    """A laptop looks at the first minute, then with pauses of minutes to a day, until it is gone."""
    gone = dice.choice((dice.uniform(0.01, 1.0) * works, works + dice.uniform(0.0, 3.0) * DAY))
    looks, at = [60.0], 60.0
    while at < gone and len(looks) < 40:
        at += dice.choice((dice.uniform(60, 900), dice.uniform(0.2, 5) * HOUR, dice.uniform(5, 24) * HOUR))
        if at < gone:
            looks.append(at)
    return tuple(looks)


def _happenings(dice: random.Random, fault: str, works: float, need: float) -> list[Happening]:
    if fault in LASTING:
        begin = dice.choice((BEGUN, max(BEGUN, need + dice.uniform(-2, 3) * HOUR)))
        until = dice.choice((need + dice.uniform(1, 30) * HOUR, need + dice.uniform(1, 12) * DAY, FOR_EVER))
        found = [Happening(begin, f"{fault} on")]
        return found if until > MONTH else [*found, Happening(until, f"{fault} off")]
    if fault in ("second", "lost"):
        return [Happening(0.0, f"{fault} on")]
    if fault == "jump":
        return [
            Happening(dice.uniform(0, need + DAY), "jump", dice.choice((-400, -1, 1, 30, 400)) * DAY * dice.random())
            for _ in range(dice.randint(1, 3))
        ]
    if fault == "reboot":
        return [Happening(dice.uniform(0.1, 1.2) * need, "reboot") for _ in range(dice.randint(1, 3))]
    if fault == "started":
        return [Happening(need + dice.uniform(1, 10) * DAY, "started")]
    if fault == "killed":
        return [Happening(works * dice.uniform(0.05, 0.95), "killed")]
    return [Happening(works * dice.uniform(0.05, 0.95), "blocked")] if fault == "blocked" else []
