"""Which facts of a profile a box can be asked for, and what its answers say of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sweepstack.profiles.model import Profile

PROBE = Path(__file__).with_name("probe_box.py")
HOSTS = ("pypi.org", "huggingface.co")
"""What a job fetches from, where no mirror is needed."""
NOT_WHOLE = "; its stamp covers boxes with a volume and prices, too, which were not asked: no stamp"

Verdict = Literal["agrees", "contradicted", "told", "no answer"]
"""agrees: the box answered as the profile says. contradicted: it did not. told: the profile says nothing of it, and one
box proves nothing of the next. no answer: it could not be seen."""


@dataclass(frozen=True)
class Answer:
    """One fact. `fact` is a key of the profile's `stamps`, or `own_key`; `whole`: all that its stamp stands for was
    asked, so that it may have a new one."""

    fact: str
    says: str
    box: str
    verdict: Verdict
    whole: bool = True

    @property
    def stamped(self) -> bool:
        """Whether a new stamp may be proposed."""
        return self.verdict == "agrees" and self.whole

    def line(self) -> str:
        """For people."""
        verdict = "CONTRADICTED" if self.verdict == "contradicted" else self.verdict
        return f"  {verdict:12} {self.fact}: the profile says {self.says}; the box: {self.box}"


def question(profile: Profile, word: str, *, mark: bool) -> list[str]:
    """The command that asks a box without a volume. `word` is what the marks on its tiers hold; `mark`: write them."""
    own = profile.own_key.variable if profile.own_key is not None else ""
    caches = dict(profile.network.caches) if profile.network is not None else {}
    asked = {
        "word": word,
        "mark": mark,
        "tiers": {name: tier.path for name, tier in profile.layout(volume=False).tiers.items() if tier.path},
        "caches": caches,
        "own_key": own,
        "hosts": HOSTS,
    }
    return ["python3", "-c", PROBE.read_text("utf-8"), json.dumps(asked)]


def read(said: str) -> dict[str, Any]:
    """The answer in what the command printed. Raises ValueError."""
    for line in reversed(said.strip().splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    raise ValueError("the box printed no answer")


def judge(profile: Profile, seen: Mapping[str, Any], after_stop: Mapping[str, Any] | None) -> list[Answer]:
    """What the box's answers say: `seen` while it ran, `after_stop` once it was started again (None: it was not)."""
    tiers = dict(seen.get("tiers") or {})
    after = None if after_stop is None else dict(after_stop.get("tiers") or {})
    return [
        *_tiers(profile, tiers, after),
        _value("host_driver_cuda_max", profile.host_driver_cuda_max, seen.get("cuda")),
        *_mirror(profile, seen),
        *_key_there(profile, seen),
        *_caches(profile, seen),
    ]


def judge_own_key(profile: Profile, stopped: bool, why_not: str) -> Answer:
    """`stopped`: the platform said that it was stopped, and its own journal said before that it would be."""
    says = f"{profile.own_key.variable} stops the box" if profile.own_key is not None else "there is none"
    if stopped:
        return Answer("own_key", says, "it stopped itself with it", "agrees")
    return Answer("own_key", says, f"it did not stop: {why_not}", "contradicted")


def _tiers(profile: Profile, tiers: Mapping[str, Any], after: Mapping[str, Any] | None) -> Iterator[Answer]:
    for name, tier in profile.layout(volume=False).tiers.items():
        if not tier.path:
            continue
        found = tiers.get(name) or {}
        if not found:
            yield Answer("tiers", f"{name} is {tier.path}", "not seen", "no answer")
            continue
        there = bool(found.get("there") and found.get("marked"))
        box = f"there, writable, on {found.get('kind')} at {found.get('mount')}" if there else "not there or read-only"
        says = f"{name} is {tier.path}"
        yield Answer("tiers", says, box + NOT_WHOLE, "agrees" if there else "contradicted", whole=False)
        stays = tier.survives.get("stop")
        says = f"{name} {'survives' if stays else 'may not survive' if stays is None else 'does not survive'} a stop"
        if not there or after is None or name not in after:
            yield Answer("tiers", says, "not seen after a stop", "no answer", whole=False)
            continue
        kept = bool(after[name].get("marked"))
        box = f"its mark is {'still there' if kept else 'gone'} after a stop"
        verdict: Verdict = "told" if stays is None else "agrees" if kept == stays else "contradicted"
        yield Answer("tiers", says, box + NOT_WHOLE, verdict, whole=False)


def _mirror(profile: Profile, seen: Mapping[str, Any]) -> Iterator[Answer]:
    hosts = dict(seen.get("hosts") or {})
    if not hosts:
        return
    found = _yes_or_no("china_mirror_needed", profile.china_mirror_needed, not all(hosts.values()))
    told = ", ".join(f"{host} {'answers' if fine else 'does not answer'}" for host, fine in hosts.items())
    yield replace(found, box=told)


def _key_there(profile: Profile, seen: Mapping[str, Any]) -> Iterator[Answer]:
    if profile.own_key is None:
        return
    there, says = seen.get("own_key"), f"{profile.own_key.variable} is in the environment of process 1"
    if there is None:
        yield Answer("own_key", says, "that can't be read", "no answer", whole=False)
    else:
        yield Answer("own_key", says, "it is" if there else "it is not", "agrees" if there else "contradicted", False)


def _caches(profile: Profile, seen: Mapping[str, Any]) -> Iterator[Answer]:
    found = dict(seen.get("caches") or {})
    bad = sorted(name for name, fine in found.items() if not fine)
    if profile.network is None or not found:
        return
    says = ", ".join(f"{name} is {path}" for name, path in profile.network.caches.items())
    box = f"{', '.join(bad)} can't be written" if bad else "all can be written"
    alone = profile.network.proxy is None and not profile.network.mirrors  # then its stamp stands for caches alone
    yield Answer("network", says, box, "contradicted" if bad else "agrees", alone)


def _yes_or_no(fact: str, says: bool | None, box: object) -> Answer:
    words = {True: "yes", False: "no"}
    if box is None:
        return Answer(fact, "nothing" if says is None else words[says], "can't be seen", "no answer")
    if says is None:
        return Answer(fact, "nothing", words[bool(box)], "told")
    return Answer(fact, words[says], words[bool(box)], "agrees" if bool(box) == says else "contradicted")


def _value(fact: str, says: object, box: object) -> Answer:
    if box is None:
        return Answer(fact, "nothing" if says is None else str(says), "can't be seen", "no answer")
    if says is None:
        return Answer(fact, "nothing", str(box), "told")
    return Answer(fact, str(says), str(box), "agrees" if str(box) == str(says) else "contradicted")
