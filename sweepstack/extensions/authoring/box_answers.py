"""Which facts of a profile a box can be asked for, and what its answers say of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from sweepstack.core.paths import PACKAGE
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.host.offers import GB
from sweepstack.profiles.layout import Layout, Tier
from sweepstack.profiles.model import Profile

PROBE = PACKAGE / "onbox" / "visit" / "facts.py"
MARK = ".sweepstack-live-mark"
"""The file that a tier is asked to keep."""
HOSTS = ("pypi.org", "huggingface.co")
"""What a job fetches from, where no mirror is needed."""
PROGRAMS = ("tmux", "setsid", "nohup")
NOT_WHOLE = "; its stamp covers boxes with a volume and prices, too, which were not asked: no stamp"
ROUTES = {
    "pip": ("PIP_INDEX_URL", "https://pypi.org/simple", "/numpy/"),
    "huggingface": ("HF_ENDPOINT", "https://huggingface.co", "/bert-base-uncased/resolve/main/tokenizer.json"),
}
"""Routes whose speed can be told: the variable of the mirror, the vendor's own address, and a file that both have."""
FASTER = 0.8
"""A mirror with less than this part of the vendor's speed is slower."""
SLACK = 0.1
"""By so much may a cap differ from what a file system says."""

Mark = Literal["try", "write", "look"]
Verdict = Literal["agrees", "contradicted", "told", "no answer"]
"""agrees: the box answered as the profile says. contradicted: it did not. told: the profile says nothing of it, and one
box proves nothing of the next. no answer: it could not be seen."""


@dataclass(frozen=True)
class FactAnswer:
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


def question(
    profile: Profile,
    word: str,
    *,
    mark: Mark,
    volume: bool = False,
    file: str = MARK,
    hosts: Sequence[str] | None = None,
) -> list[str]:
    """The command that asks a box, in its own folder. `word` is what the marks on its tiers hold, in `file`; `mark`:
    write them and take them away, leave them there, or look for those that were left. `volume`: it mounts one."""
    hosts = HOSTS if hosts is None else hosts
    asked = {
        "word": word,
        "file": file,
        "mark": mark,
        "tiers": {name: tier.path for name, tier in profile.layout(volume=volume).tiers.items() if tier.path},
        "caches": dict(profile.network.caches) if profile.network is not None else {},
        "own_key": profile.own_key.variable if profile.own_key is not None else "",
        "programs": PROGRAMS,
        "hosts": list(hosts),
        "speeds": _speeds(profile) if hosts else {},
    }
    return ["python3", "-c", PROBE.read_text("utf-8"), json.dumps(asked)]


def _speeds(profile: Profile) -> dict[str, tuple[str, str]]:
    mirrors = profile.network.mirrors if profile.network is not None else {}
    found = {}
    for route, (variable, vendor, path) in ROUTES.items():
        mirror = dict(mirrors.get(route, {})).get(variable)  # type: ignore[call-overload]
        if mirror:
            found[route] = (vendor + path, mirror.rstrip("/") + path)
    return found


def parse_answers(said: str) -> dict[str, Any]:
    """The answer in what the command printed. Raises ValueError."""
    for line in reversed(said.strip().splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    raise ValueError("the box printed no answer")


def compare_with_profile(
    profile: Profile, seen: Mapping[str, Any], after_stop: Mapping[str, Any] | None, *, volume: bool = False
) -> list[FactAnswer]:
    """What the box's answers say: `seen` while it ran, `after_stop` once it was started again (None: it was not).
    `volume`: it mounts one."""
    tiers = dict(seen.get("tiers") or {})
    after = None if after_stop is None else dict(after_stop.get("tiers") or {})
    return [
        *_tiers(profile.layout(volume=volume), tiers, after),
        _value("host_driver_cuda_max", profile.host_driver_cuda_max, seen.get("cuda")),
        *_mirror(profile, seen),
        *_routes(profile, seen),
        *_machine(seen),
        *_key_there(profile, seen),
        *_caches(profile, seen),
    ]


def judge_own_key(profile: Profile, stopped: bool, why_not: str) -> FactAnswer:
    """`stopped`: the platform said that it was stopped, and its own journal said before that it would be."""
    says = f"{profile.own_key.variable} stops the box" if profile.own_key is not None else "there is none"
    if stopped:
        return FactAnswer("own_key", says, "it stopped itself with it", "agrees")
    return FactAnswer("own_key", says, f"it did not stop: {why_not}", "contradicted")


def judge_stop(layout: Layout, after: Mapping[str, Any]) -> list[FactAnswer]:
    """What the marks say that were left before a stop, once the box runs again."""
    tiers = dict(after.get("tiers") or {})
    return [_kept(name, tier, tiers[name]) for name, tier in layout.tiers.items() if tiers.get(name)]


def _tiers(layout: Layout, tiers: Mapping[str, Any], after: Mapping[str, Any] | None) -> Iterator[FactAnswer]:
    for name, tier in layout.tiers.items():
        if not tier.path:
            continue
        says, found = f"{name} is {tier.place or tier.path}", tiers.get(name) or {}
        if not found:
            yield FactAnswer("tiers", says, "not seen", "no answer")
            continue
        there = bool(found.get("there") and found.get("marked"))
        box = f"there, writable, on {found.get('kind')} at {found.get('mount')}" if there else "not there or read-only"
        yield FactAnswer("tiers", says, box + NOT_WHOLE, "agrees" if there else "contradicted", whole=False)
        if there:
            yield from _room(name, tier, found)
        if not there or after is None or name not in after:
            yield FactAnswer("tiers", _stays(name, tier), "not seen after a stop", "no answer", whole=False)
            continue
        yield _kept(name, tier, after[name])


def _stays(name: str, tier: Tier) -> str:
    stays = tier.survives.get("stop")
    return f"{name} {'survives' if stays else 'may not survive' if stays is None else 'does not survive'} a stop"


def _kept(name: str, tier: Tier, found: Mapping[str, Any]) -> FactAnswer:
    stays, kept = tier.survives.get("stop"), bool(found.get("marked"))
    box = f"its mark is {'still there' if kept else 'gone'} after a stop"
    verdict: Verdict = "told" if stays is None else "agrees" if kept == stays else "contradicted"
    return FactAnswer("tiers", _stays(name, tier), box + NOT_WHOLE, verdict, whole=False)


def _room(name: str, tier: Tier, found: Mapping[str, Any]) -> Iterator[FactAnswer]:
    """Whether it is a mount of its own, how much it holds, and how many files."""
    if tier.mounted and tier.place:
        fine = found.get("mount") not in (None, "/")
        box = f"{found.get('path')} lies on {found.get('mount')}"
        yield FactAnswer("tiers", f"{tier.place} is a mount", box, "agrees" if fine else "contradicted", whole=False)
    size, free = found.get("bytes"), found.get("free_bytes")
    if size is not None and free is not None:
        box = f"{free / GB:.0f} of {size / GB:.0f} GB are free"
        says = f"{name} holds {tier.size_cap_bytes / GB:g} GB" if tier.size_cap_bytes else f"nothing of {name}'s size"
        # More than the cap proves nothing: a quota does not show in what the file system says of itself.
        less = bool(tier.size_cap_bytes) and size < (tier.size_cap_bytes or 0) * (1 - SLACK)
        yield FactAnswer("tiers", says, box, "contradicted" if less else "told", whole=False)
    files, left = found.get("inodes"), found.get("free_inodes")
    if files is not None and left is not None:
        box = f"{left:,} of {files:,} files are free"
        says = f"{name} holds {tier.inode_cap:,} files" if tier.inode_cap else f"nothing of {name}'s inodes"
        less = bool(tier.inode_cap) and files < (tier.inode_cap or 0) * (1 - SLACK)
        yield FactAnswer("tiers", says, box, "contradicted" if less else "told", whole=False)


def _mirror(profile: Profile, seen: Mapping[str, Any]) -> Iterator[FactAnswer]:
    hosts = dict(seen.get("hosts") or {})
    if not hosts:
        return
    mirrors = [mirror for _, mirror in dict(seen.get("speeds") or {}).values()]
    shut = not any(hosts.values()) and not any(mirrors)  # no internet: whether a mirror would help is not seen
    found = _yes_or_no("china_mirror_needed", profile.china_mirror_needed, None if shut else not all(hosts.values()))
    told = ", ".join(f"{host} {'answers' if fine else 'does not answer'}" for host, fine in hosts.items())
    yield replace(found, box=f"{told}{': it may have no internet' if shut else ''}")


def _routes(profile: Profile, seen: Mapping[str, Any]) -> Iterator[FactAnswer]:
    """Mirrors against the vendor's own address, each by the box's own route."""
    for route, (vendor, mirror) in dict(seen.get("speeds") or {}).items():
        says = f"{route} goes to {_speeds(profile)[route][1].split('/')[2]}"
        told = {"the vendor": vendor, "the mirror": mirror}
        box = ", ".join(f"{who} {_pace(bytes_a_second)}" for who, bytes_a_second in told.items())
        verdict: Verdict = "agrees"
        if mirror is None:
            verdict = "contradicted" if vendor is not None else "no answer"
        elif vendor is not None and mirror < vendor * FASTER:
            verdict = "told"
            box += ": the mirror is the slower one here"
        yield FactAnswer("network", says, box, verdict, whole=False)


def _pace(bytes_a_second: float | None) -> str:
    return "does not answer" if bytes_a_second is None else f"{bytes_a_second / 1e6:.2f} MB/s"


def _machine(seen: Mapping[str, Any]) -> Iterator[FactAnswer]:
    """What no profile says, since each box has its own."""
    told = []
    if seen.get("memory"):
        told.append(f"{seen['memory'] / GB:.1f} GB of RAM")
    if seen.get("cpus"):
        told.append(f"{seen['cpus']:g} CPUs")
    if seen.get("cards"):
        told.append(", ".join(seen["cards"]))
    if seen.get("nvme") is not None:
        told.append(f"its data lies on {'NVMe' if seen['nvme'] else 'no NVMe'}")
    told += [
        f"{name} is {'there' if there else 'not there'}" for name, there in dict(seen.get("programs") or {}).items()
    ]
    if told:
        yield FactAnswer("this box", "nothing", "; ".join(told), "told", whole=False)


def _key_there(profile: Profile, seen: Mapping[str, Any]) -> Iterator[FactAnswer]:
    if profile.own_key is None:
        return
    there, says = seen.get("own_key"), f"{profile.own_key.variable} is in the environment of process 1"
    if there is None:
        yield FactAnswer("own_key", says, "that can't be read", "no answer", whole=False)
    else:
        yield FactAnswer(
            "own_key", says, "it is" if there else "it is not", "agrees" if there else "contradicted", False
        )


def _caches(profile: Profile, seen: Mapping[str, Any]) -> Iterator[FactAnswer]:
    found = dict(seen.get("caches") or {})
    bad = sorted(name for name, fine in found.items() if not fine)
    if profile.network is None or not found:
        return
    says = ", ".join(f"{name} is {path}" for name, path in profile.network.caches.items())
    box = f"{', '.join(bad)} can't be written" if bad else "all can be written"
    alone = profile.network.proxy is None and not profile.network.mirrors  # then its stamp stands for caches alone
    yield FactAnswer("network", says, box, "contradicted" if bad else "agrees", alone)


def _yes_or_no(fact: str, says: bool | None, box: object) -> FactAnswer:
    words = {True: "yes", False: "no"}
    if box is None:
        return FactAnswer(fact, "nothing" if says is None else words[says], "can't be seen", "no answer")
    if says is None:
        return FactAnswer(fact, "nothing", words[bool(box)], "told")
    return FactAnswer(fact, words[says], words[bool(box)], "agrees" if bool(box) == says else "contradicted")


def _value(fact: str, says: object, box: object) -> FactAnswer:
    if box is None:
        return FactAnswer(fact, "nothing" if says is None else str(says), "can't be seen", "no answer")
    if says is None:
        return FactAnswer(fact, "nothing", str(box), "told")
    return FactAnswer(fact, str(says), str(box), "agrees" if str(box) == str(says) else "contradicted")
