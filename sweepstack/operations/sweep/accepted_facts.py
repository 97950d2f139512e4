"""Old facts of a profile under a verb that can't be undone: refused by name, or accepted by name.

It is asked where a person approves, and nowhere later: what was approved is not locked again because a fact grew old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date

from sweepstack.config.override import AcceptedFact
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, No, Unsure
from sweepstack.operations.sweep.target import Target
from sweepstack.profiles import dated_facts, dates
from sweepstack.profiles.dated_facts import VERB_WORDS, DatedFact, Leaning
from sweepstack.profiles.load import load_profile, platforms
from sweepstack.profiles.model import Profile

STALE = "sweepctl profile check --old"


class NoProfile(Unsure):
    """A profile that is there does not hold, so that no fact of it can be asked."""


@dataclass(frozen=True)
class Relied:
    """The old facts that an approval relies on. `given`: those accepted on the command line; `before`: in the file."""

    given: dict[str, AcceptedFact] = field(default_factory=dict)
    before: dict[str, AcceptedFact] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """A line for each fact that is relied on although it is old."""
        for name in self.given | self.before:
            said = f" (accepted on {self.before[name].accepted})" if name not in self.given else ""
            yield f"old fact  {self.words[name]}{said}"

    def write(self, target: Target) -> list[str]:
        """Writes what was accepted now into the stack file. Returns the names. Raises ConfigError, OSError."""
        for name, accepted in self.given.items():
            target.file.write_accepted_fact(name, accepted)
        return list(self.given)


def relied(
    target: Target,
    whose: Iterable[tuple[str | None, str]],
    verb: Leaning,
    names: Sequence[str],
    spelled: Callable[[Iterable[str]], str],
) -> Relied:
    """The old facts that `verb` relies on for these (platform or None, adapter), all accepted by the stack file or by
    `names`. Raises No with each that is not, and with the command that names them too. `names` may hold no fact
    that needs no acceptance: it is passed on purpose, never by habit. Raises NoProfile, with the same command, where
    one does not hold."""
    day, before = dates.today(), accepted_in(target)
    try:
        profiles = profiles_of(target, whose)
    except ConfigError as error:
        raise NoProfile(str(error), [f"{spelled(())}    (once it is mended, or put back)"]) from error
    old = {
        fact.name: fact
        for profile in profiles.values()
        for fact in dated_facts.facts_of(profile, day)
        if verb in fact.leans and fact.stale()
    }
    for name in names:
        if name not in old:
            raise No(f"fact {name}: {_not_needed(name, profiles, old, verb, day)}", [STALE])
    counted = {name: before[name] for name, fact in old.items() if dated_facts.covers(before.get(name), fact, day)}
    missing = [fact for name, fact in old.items() if name not in counted and name not in names]
    if missing:
        raise _refusal(missing, verb, before, spelled([fact.name for fact in missing]))
    given = {
        name: AcceptedFact.model_validate({"month": old[name].stamp, "accepted": day.isoformat()}) for name in names
    }
    return Relied(given, counted, {name: fact.words for name, fact in old.items()})


def _refusal(missing: Sequence[DatedFact], verb: Leaning, before: Mapping[str, AcceptedFact], command: str) -> No:
    lines = [f"not approved; nothing was written: {VERB_WORDS[verb]} can't be undone, and what it relies on is old"]
    for fact in missing:
        run_out = f"; what was accepted on {before[fact.name].accepted} counts no more" if fact.name in before else ""
        lines.append(f"  {fact.words}{run_out}")
    return No("\n".join(lines), [f"{command}    (once you have looked at the platform's pages)", STALE])


def _not_needed(
    name: str, profiles: Mapping[str, Profile], old: Mapping[str, DatedFact], verb: Leaning, day: date
) -> str:
    """Why this name accepts nothing here."""
    if not profiles:
        return "no fact of a profile is relied on here; leave it out"
    known = {fact.name: fact for profile in profiles.values() for fact in dated_facts.facts_of(profile, day)}
    fact = known.get(name)
    if fact is None:
        return f"there is no such fact here{did_you_mean(name, old or known)}"
    if verb not in fact.leans:
        return f"{VERB_WORDS[verb]} does not lean on it; leave it out"
    return f"it is of {fact.stamp}, {dated_facts.months_words(fact.age)} old, and needs no acceptance; leave it out"


def profiles_of(target: Target, whose: Iterable[tuple[str | None, str]]) -> dict[str, Profile]:
    """The profiles of these, by name. A platform whose profile this version lacks has no fact that could be asked."""
    there = platforms()
    found: dict[str, Profile] = {}
    for platform, adapter in whose:
        plain = adapter.partition(":")[0]
        if platform is not None or plain in there:
            named = [platform or plain]
        else:  # a state of an older version, or an adapter that is spelled in another way than its platform
            wanted = candidates(target)
            same = [name for name in there if load_profile(name).adapter == plain]
            named = [name for name in same if name in wanted] or same
        found |= {name: load_profile(name) for name in named if name in there}
    return found


def accepted_in(target: Target) -> dict[str, AcceptedFact]:
    """What the stack file accepts; nothing where it is not there or does not read: a box can be given up without it."""
    try:
        return target.file.accepted_facts() if target.file.path.exists() else {}
    except ConfigError:
        return {}


def candidates(target: Target) -> Sequence[str]:
    """The platforms that the stack file names; none where it does not read."""
    try:
        sweep = target.file.sweep()
    except ConfigError:
        return ()
    names = sweep.get("candidates") or [sweep.get("platform")]
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else ()
