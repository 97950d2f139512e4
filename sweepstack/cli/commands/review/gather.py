"""Gathers what a review is made of: the engine's preview, and the picture of the sweep. Reads only."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweepstack.cli.accepted_facts import accepted_in, profiles_of
from sweepstack.cli.collect import look
from sweepstack.cli.commands.approve.preview import dying
from sweepstack.cli.engine_mend import require_engine
from sweepstack.cli.output import Unsure
from sweepstack.cli.roster_diff import file_roster
from sweepstack.cli.sources import Sources, open_sources
from sweepstack.cli.target import Target
from sweepstack.cli.volume_status import holding
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.roster import Roster as WholeRoster
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.volumes.users import Survey, survey
from sweepstack.profiles import dates, facts
from sweepstack.review.live import Live, LiveFact, LiveVolume, Roster, live_of
from sweepstack.status.compose import compose
from sweepstack.status.engine import call as engine_call
from sweepstack.status.engine.call import EngineCall
from sweepstack.status.snapshot import Snapshot

PREVIEW_SECONDS = 900.0
"""The most for a preview: it looks at every box and asks every platform, which has deadlines of their own."""
GIT_SECONDS = 60.0
_IRREVERSIBLE = frozenset({"destroy", "stop", "volume"})


@dataclass(frozen=True)
class Gathered:
    """The document of the engine's preview as it printed it, and what is there now."""

    document: Any
    live: Live


def gather(target: Target, *, destroy: bool, base: str) -> Gathered:
    """Blocks for the longer of a preview (`PREVIEW_SECONDS` at most) and a look: both run side by side.

    Raises Unsure where neither the engine nor the sweep can be asked, No where the engine refuses every command.
    """
    earlier = _roster_of_revision(target, base) if base else None  # first: a mistake in it costs no preview
    # A placement, a smoke run count when the next box is rented: no change for the engine, and one for the digest.
    words = ["destroy", "--preview-only"] if destroy else ["preview", "--show-sames"]
    call = EngineCall(
        [engine_call.find_engine(), *words, "--stack", target.stack, "--json"], target.root, seconds=PREVIEW_SECONDS
    )
    sources = open_sources(target)
    require_engine(sources)
    problems: list[str] = []
    live = _live(sources, base, earlier, problems)
    code, out, complaint = call.answer()
    try:
        document = json.loads(out)
    except ValueError:
        said = complaint or out.decode("utf-8", "replace").strip() or "nothing"
        raise Unsure(
            f"`{call.shown}` printed no preview (exit code {code}); pulumi said: {said}",
            [f"pulumi {' '.join(words)} --stack {target.stack}    (shows the same to a person)"],
        ) from None
    return Gathered(document, _told(live, code, document))


def _told(live: Live, code: int, document: Any) -> Live:
    """A preview that failed without a word of why is no preview that may go on."""
    named = document.get("diagnostics") if isinstance(document, dict) else None
    if code == 0 or any(one.get("severity") == "error" for one in named or ()):
        return live
    why = f"the preview failed (exit code {code}), and did not say why"
    return live.model_copy(update={"problems": (*live.problems, why)})


def _live(sources: Sources, base: str, earlier: WholeRoster | None, problems: list[str]) -> Live:
    target = sources.target
    snapshot = look(sources)
    view = compose(snapshot)
    written, problem = file_roster(target.file) if not target.is_store else (None, "")
    problems += [problem] if problem else []
    problems += sources.state.problems
    rosters = {"state": _in_state(snapshot)}
    if written is not None:
        rosters["file"] = _plain(written)
    if earlier is not None:
        rosters["base"] = _plain(earlier)
    return live_of(
        snapshot,
        view,
        rosters=rosters,
        facts=_facts(target, snapshot),
        volumes=_volumes(sources),
        in_no_copy=dying(sources.store, snapshot.box_snapshots, "destroy"),
        base=base,
        problems=problems,
        store=target.is_store,
    )


def _plain(roster: WholeRoster) -> Roster:
    cells = {cell.name: cell.config_digest for cell in roster.cells if cell.name not in roster.dropped}
    return Roster(cells=cells, dropped=dict(roster.dropped))


def _in_state(snapshot: Snapshot) -> Roster:
    """The cells that the queues of the state have."""
    cells: dict[str, str] = {}
    dropped: dict[str, str] = {}
    for queue in snapshot.state.queues:
        cells |= {cell.name: cell.config_digest for cell in queue.roster()}
        dropped |= queue.dropped
    return Roster(cells={name: digest for name, digest in cells.items() if name not in dropped}, dropped=dropped)


def _volumes(sources: Sources) -> Iterator[LiveVolume]:
    """The volumes that this stack keeps, each with the answer of the check that its delete asks."""
    if not any(entry.guarded for entry in sources.state.volumes):
        return

    def users(native_ids: Sequence[str]) -> Survey:
        return survey(sources.target.root, sources.store, native_ids, but=sources.target.stack)

    adapters = {entry.native_id: entry.adapter for entry in sources.state.volumes}
    for one in holding(sources, users).volumes:
        yield LiveVolume(
            name=one.facts.name,
            native_id=one.facts.native_id,
            platform=adapters[one.facts.native_id],
            location=one.facts.where,
            guarded=True,
            size_gb=one.facts.size_gb,
            usd_per_month=one.facts.price_per_month,
            allowed=one.verdict.allowed,
            way=one.verdict.way,
            reasons=tuple(one.verdict.reasons),
            users=one.users,
        )


def _facts(target: Target, snapshot: Snapshot) -> Iterator[LiveFact]:
    """The facts of these platforms that something irreversible leans on, and that are old or unproved."""
    day, accepted = dates.today(), accepted_in(target)
    owners = {(box.platform, box.adapter): box.platform or box.adapter for box in snapshot.state.boxes}
    owners |= {(None, volume.adapter): volume.adapter for volume in snapshot.state.volumes if volume.guarded}
    for whose, shown in owners.items():
        for profile in profiles_of(target, [whose]).values():
            for fact in facts.facts_of(profile, day):
                unproved = fact.proved_live == "never"
                if not set(fact.leans) & _IRREVERSIBLE or not (fact.stale() or unproved):
                    continue
                covered = facts.covers(accepted.get(fact.name), fact, day)
                live = ", and it was never proved on a real account" if unproved else ""
                yield LiveFact(
                    name=fact.name,
                    platform=shown,
                    words=f"{fact.words}{live}",
                    leans=tuple(fact.leans),
                    stale=fact.stale(),
                    accepted=str(accepted[fact.name].accepted) if covered else "",
                )


def _roster_of_revision(target: Target, revision: str) -> WholeRoster | None:
    """The roster of the stack file as git has it in this revision; an empty one where it has no such file there.

    Raises Unsure for a revision that git does not know, and for a file that does not read.
    """
    commit = _git(target.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise Unsure(
            f"--base {revision}: git knows no such revision in {target.root}",
            ["git fetch    (a pipeline's clone has often one commit only: fetch the base, too)"],
        )
    path = target.file.path.relative_to(target.root)
    text = _git(target.root, "show", f"{commit.decode().strip()}:./{path.as_posix()}")
    if text is None:
        return WholeRoster(())
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(text)
        roster, problem = file_roster(StackFile(copy, f"{target.file.shown} of {revision}", target.file.key))
    if problem:
        raise Unsure(f"--base {revision}: {problem}")
    return roster


def _git(root: Path, *words: str) -> bytes | None:
    """What git prints; None where it says no. Raises SweepstackError where there is no git."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepstackError(f"--base needs git: {error}") from error
    return done.stdout if done.returncode == 0 else None
