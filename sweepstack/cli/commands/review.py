"""`sweepctl review`: what a change would do, and whether it may go on, before it is made.

Written to a terminal, as Markdown, HTML or JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sweepstack.cli.options import AsJson, Stack, one_of
from sweepstack.cli.output import Out
from sweepstack.cli.progress import Progress
from sweepstack.config.declared import declared_path
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.roster import Roster as WholeRoster
from sweepstack.onbox.common.canonical import DIGEST, write_atomically
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import SweepstackError, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.accepted_facts import accepted_in, profiles_of
from sweepstack.operations.sweep.collect import in_no_copy, take_snapshot
from sweepstack.operations.sweep.engine_mend import require_engine
from sweepstack.operations.sweep.roster_diff import file_roster
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.mounting_sweeps import Survey, survey
from sweepstack.operations.volumes.volumes_now import holding
from sweepstack.profiles import dated_facts, dates
from sweepstack.review.assess import assess
from sweepstack.review.live import Live, LiveFact, LiveVolume, Roster
from sweepstack.review.markdown import markdown, page
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, Review
from sweepstack.review.plan import read_plan
from sweepstack.review.words import NEXT, Block, Commands, Grid, Heading, Line, Listing, Quoted, written
from sweepstack.status.compose import compose
from sweepstack.status.engine import call as engine_call
from sweepstack.status.engine.call import EngineCall
from sweepstack.status.snapshot import Snapshot


def command(
    destroy: Annotated[bool, typer.Option("--destroy", help="Review `pulumi destroy`, not `pulumi up`.")] = False,
    base: Annotated[
        str, typer.Option(metavar="REV", help="Also compare the cells with the stack file of this git revision.")
    ] = "",
    expect: Annotated[
        str, typer.Option(metavar="sha256:…", help="Say no if the change is another than the one with this digest.")
    ] = "",
    request: Annotated[
        bool, typer.Option("--request", help="The change is a pull or merge request: what follows is its merge.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="markdown|html",
            help="For a comment on a pull request; one self-contained page.",
        ),
    ] = "",
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write it here, as .md, .html or .json. May be given repeatedly.",
        ),
    ] = None,
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Show what a change ends, keeps and costs, before it is made. Exit 0: it may go on; 1: no; 2: could not tell."""
    if form:
        one_of(form, "markdown", "html", option="--as")
    wanted = Wanted(destroy, base, expect, request, form, tuple(output or ()))
    return review(Target.find(stack), wanted, Out(as_json=json))


SHOWN = 40
"""Entries of one list that are printed for people; the others are counted."""
_STYLES = {MAY_GO_ON: "bold green", MAY_NOT: "bold red"}


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    destroy: bool = False
    base: str = ""
    expect: str = ""
    request: bool = False
    form: str = ""
    files: tuple[Path, ...] = ()


def review(target: Target, wanted: Wanted, out: Out) -> int:
    """Exit 0: the change may go on; 1: it may not; 2: could not tell. Writes only the files that were asked for."""
    if wanted.expect and not DIGEST.fullmatch(wanted.expect):
        raise Unsure(f"--expect {wanted.expect}: not a whole digest (sha256: and 64 hex digits), as a review prints it")
    if wanted.form and out.as_json:
        raise Unsure(f"--as {wanted.form} and --json are 2 answers on one stdout: write one of them with -o FILE")
    for file in wanted.files:
        if file.suffix.lower() not in FORMS:
            raise Unsure(f"-o {file}: its name says in which form it is written: {', '.join(FORMS)}")
    with Progress("the engine's preview, and a look at the boxes"):
        found = preview_and_look(target, destroy=wanted.destroy, base=wanted.base)
        made = assess(
            read_plan(found.document, destroy=wanted.destroy),
            found.live,
            expected=wanted.expect,
            request=wanted.request,
        )
    for file in wanted.files:
        _write(file, FORMS[file.suffix.lower()](made))
    out.document(made.as_json())
    if wanted.form == "markdown":
        sys.stdout.write(markdown(made))
    elif wanted.form == "html":
        sys.stdout.flush()
        sys.stdout.buffer.write(page(made).encode())  # the page says that it is UTF-8, whatever the terminal takes
    else:
        print_review(made, out)
    return made.code


def print_review(made: Review, out: Out) -> None:
    """Prints the review for people."""
    for index, block in enumerate(written(made)):
        _print(block, out, made, first=index == 0)


def _print(block: Block, out: Out, made: Review, *, first: bool) -> None:
    if isinstance(block, Heading):
        if not first:
            out.line()
        if block.text != NEXT:  # what to type has that label already
            out.line(block.text, style="bold")
    elif isinstance(block, Line):
        out.line(block.text, style=_STYLES.get(made.code, "bold yellow") if block.strong else None)
    elif isinstance(block, Quoted):
        out.line(block.text, style="yellow", wrap=False)
    elif isinstance(block, Commands):
        out.next(block.lines)
    elif isinstance(block, Listing):
        for item in block.items[:SHOWN]:
            out.line(f"- {item}")
        _more(len(block.items), block.noun, out)
    elif isinstance(block, Grid):
        out.table(block.headers, block.rows[:SHOWN])
        _more(len(block.rows), block.noun, out)


def _more(number: int, noun: str, out: Out) -> None:
    if number > SHOWN:
        out.line(f"… and {count(number - SHOWN, noun)} more: sweepctl review --json", style="dim")


def _document(made: Review) -> str:
    return json.dumps(made.as_json(), indent=2, ensure_ascii=False) + "\n"


FORMS: dict[str, Callable[[Review], str]] = {".md": markdown, ".html": page, ".json": _document}
"""By the end of a file's name."""


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise Unsure(f"{path} can't be written: {error.strerror or error}") from error


PREVIEW_SECONDS = 900.0
"""The most for a preview: it looks at every box and asks every platform, which has deadlines of their own."""
GIT_SECONDS = 60.0
_IRREVERSIBLE = frozenset({"destroy", "stop", "volume"})


@dataclass(frozen=True)
class Gathered:
    """The document of the engine's preview as it printed it, and what is there now."""

    document: Any
    live: Live


def preview_and_look(target: Target, *, destroy: bool, base: str) -> Gathered:
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
    live = _live(sources, base, earlier)
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
    return replace(live, problems=(*live.problems, why))


def _live(sources: Sources, base: str, earlier: WholeRoster | None) -> Live:
    target = sources.target
    snapshot = take_snapshot(sources)
    written, problem = file_roster(target.file, target.root) if not target.is_store else (None, "")
    rosters = {"state": _in_state(snapshot)}
    if written is not None:
        rosters["file"] = _plain(written)
    if earlier is not None:
        rosters["base"] = _plain(earlier)
    return Live(
        snapshot,
        compose(snapshot),
        rosters,
        facts=tuple(_facts(target, snapshot)),
        judged=tuple(_volumes(sources)),
        store=target.is_store,
        in_no_copy=in_no_copy(sources.store, snapshot.box_snapshots, "destroy"),
        base=base,
        problems=tuple(filter(None, (problem, *sources.state.problems, snapshot.evidence_problem))),
    )


def _plain(roster: WholeRoster) -> Roster:
    cells = {cell.name: cell.config_digest for cell in roster.cells if cell.name not in roster.dropped}
    return Roster(cells=cells, dropped=dict(roster.dropped))


def _in_state(snapshot: Snapshot) -> Roster:
    """The cells that the queues of the state have."""
    cells: dict[str, str] = {}
    dropped: dict[str, str] = {}
    for queue in snapshot.state.queues:
        cells |= {cell.name: cell.config_digest for cell in queue.cells}
        dropped |= queue.dropped
    return Roster(cells={name: digest for name, digest in cells.items() if name not in dropped}, dropped=dropped)


def _volumes(sources: Sources) -> Iterator[LiveVolume]:
    """The volumes that this stack keeps, each with the answer of the check that its delete asks."""
    if not any(entry.guarded for entry in sources.state.volumes):
        return

    def users(native_ids: Sequence[str]) -> Survey:
        return survey(sources.target.root, sources.store, native_ids, but=sources.target.stack)

    entries = {entry.native_id: entry for entry in sources.state.volumes}
    for one in holding(sources, users).volumes:
        yield LiveVolume(
            entry=entries[one.facts.native_id],
            allowed=one.verdict.allowed,
            way=one.verdict.way,
            reasons=tuple(one.verdict.reasons),
            users=one.users,
        )


def _facts(target: Target, snapshot: Snapshot) -> Iterator[LiveFact]:
    """The facts of these platforms that something irreversible leans on, and that are old or unproved."""
    day, accepted = dates.today(), accepted_in(target)
    owners = {(box.platform, box.adapter): box.rented_from for box in snapshot.state.boxes}
    owners |= {(None, volume.adapter): volume.adapter for volume in snapshot.state.volumes if volume.guarded}
    for whose, shown in owners.items():
        for profile in profiles_of(target, [whose]).values():
            for fact in dated_facts.facts_of(profile, day):
                unproved = fact.proved_live == "never"
                if not set(fact.leans) & _IRREVERSIBLE or not (fact.stale() or unproved):
                    continue
                covered = dated_facts.covers(accepted.get(fact.name), fact, day)
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
    declared = _git(target.root, "show", f"{commit.decode().strip()}:./{declared_path(path).as_posix()}")
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(text)
        if declared is not None:
            declared_path(copy).write_bytes(declared)
        roster, problem = file_roster(
            StackFile(copy, f"{target.file.shown} of {revision}", target.file.key), target.root
        )
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
