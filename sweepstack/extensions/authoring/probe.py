"""`profile explain --box`: asks a live box for its platform's facts, and proposes stamps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.cli.box_access import find_box, way_to
from sweepstack.cli.output import NO, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.core.paths import installed
from sweepstack.extensions.authoring import box_answers
from sweepstack.extensions.authoring.box_answers import FactAnswer, Mark
from sweepstack.extensions.authoring.stamp_patch import NoStamps, propose, stamped
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.target import Target
from sweepstack.profiles import dates
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from sweepstack.profiles.model import Profile
from sweepstack.status.engine.state import BoxEntry

SECONDS = 180.0
"""So long may the box take: its routes are timed one after another."""


def ask_box(target: Target, box: str, stop: str, patch: Path | None, out: Out) -> int:
    """Asks a box for its platform's facts; proposes stamps and edits nothing. Exit 1: it contradicts a fact.

    `stop`: "before" or "after" one, which shows what survives it; "": neither.
    """
    entry = find_box(target, box)
    profile = _profile(entry)
    if profile.by_hand is not None:
        raise No(f"box {entry.name} is on a machine that only a person reaches: nothing can be asked there from here")
    volume = bool(entry.mounts)
    mark: Mark = "write" if stop == "before" else "look" if stop == "after" else "try"
    with Progress("asking the box, about a minute"):
        seen = _ask(way_to(target, entry), profile, entry, mark, volume)
    if stop == "after":
        answers = _after(profile, seen, volume=volume)
    else:
        answers = box_answers.compare_with_profile(profile, seen, None, volume=volume)
        answers = [one for one in answers if one.box != "not seen after a stop"]
    proposed, why_not = _proposed(profile, answers)
    wrong = [one for one in answers if one.verdict == "contradicted"]
    following = _next(target, entry, profile, stop, patch if proposed else None)
    if patch is not None and proposed:
        try:
            with patch.open("x", encoding="utf-8") as file:
                file.write(proposed)
        except OSError as error:
            raise No(f"{patch} was not written: {error.strerror}") from error
    out.document(
        {
            "stack": target.stack,
            "box": entry.name,
            "platform": profile.platform,
            "answers": [
                {"fact": one.fact, "profile": one.says, "box": one.box, "verdict": one.verdict} for one in answers
            ],
            "contradicted": len(wrong),
            "stamps": stamped(answers),
            "patch": proposed or None,
            "no_patch": why_not or None,
            "next": following,
        }
    )
    for one in answers:
        out.line(one.line(), style="red" if one.verdict == "contradicted" else None)
    out.line(f"{count(len(answers), 'answer')}; {len(wrong)} contradict profiles/{profile.platform}.md")
    if not stop:
        out.line(f"not asked: what survives a stop. That needs one, and {_cost(profile)}: --stop before begins it")
    out.line(f"stamps        {', '.join(stamped(answers)) or 'none to propose'}")
    if why_not:
        out.line(f"no patch      {why_not}")
    elif proposed and patch is None:
        out.line()
        out.line(proposed, wrap=False)
    out.next(following)
    return NO if wrong else YES


def _profile(entry: BoxEntry) -> Profile:
    """The profile of the platform that the box is on. Raises Unsure where the state does not say which."""
    plain = entry.platform or entry.adapter.partition(":")[0]
    if plain not in platforms():
        raise Unsure(f"the state does not say whose machine {entry.name} is ({entry.adapter})", ["pulumi up"])
    return load_profile(plain)


def _ask(channel: Channel, profile: Profile, entry: BoxEntry, mark: Mark, volume: bool) -> Mapping[str, Any]:
    word = f"{entry.identity}-{entry.name}-g{entry.generation}"
    file = f"{box_answers.MARK}-{entry.name}"
    question = box_answers.question(profile, word, mark=mark, volume=volume, file=file)
    done = channel.run([channel.python, *question[1:]], timeout=SECONDS)
    try:
        return box_answers.parse_answers(done.stdout.decode("utf-8", "replace"))
    except ValueError as error:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        raise Unsure(f"box {entry.name} could not be asked: {error} (exit code {done.returncode}: {last})") from error


def _after(profile: Profile, seen: Mapping[str, Any], *, volume: bool) -> list[FactAnswer]:
    """What the files that were left say. Raises No where there are none, or no stop was in between."""
    tiers = dict(seen.get("tiers") or {})
    left = [found for found in tiers.values() if found.get("marked")]
    if not left:
        raise No(
            "no tier has a file of `profile explain --box BOX --stop before`: it was never left there, or nothing "
            "at all survived, and one can't be told from the other"
        )
    if any(found.get("since") == seen.get("boot") for found in left):
        raise No("the box was not stopped since --stop before: it runs since the same start. The files stay there")
    return box_answers.judge_stop(profile.layout(volume=volume), seen)


def _proposed(profile: Profile, answers: list[FactAnswer]) -> tuple[str, str]:
    """The patch, and why there is none."""
    if installed():
        return "", "an installed sweepstack has no repository of profiles to patch"
    try:
        return propose(FOLDER / f"{profile.platform}.md", answers, dates.today(), proved_live=False), ""
    except NoStamps as error:
        return "", str(error)


def _cost(profile: Profile) -> str:
    """What a stop costs, by the profile."""
    verb = profile.verbs.get("stop")
    if verb is None:
        return "this platform has no stop"
    dies = f"kills {' and '.join(verb.kills)}" if verb.kills else "keeps every tier, by the profile"
    bills = f", and {', '.join(verb.bills_after)} goes on billing" if verb.bills_after else ""
    return f"it ends what runs, {dies}{bills}"


def _next(target: Target, entry: BoxEntry, profile: Profile, stop: str, patch: Path | None) -> list[str]:
    if stop == "before":
        want = f"boxes.{entry.name}.want"
        return [
            f"pulumi up --stack {target.stack}    (after {want}: stopped; {_cost(profile)})",
            f"pulumi up --stack {target.stack}    (after {want}: running)",
            f"sweepctl profile explain --box {entry.name} --stack {target.stack} --stop after",
        ]
    if patch is not None:
        return [f"git apply {patch}", ".venv/bin/python docs/generate.py"]
    return [f"sweepctl profile show {profile.platform}"]
