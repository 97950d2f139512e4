"""`sweepctl adopt`: takes a sweep over from a lost backend, or from a machine that was renamed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from sweepstack.billing.stray import import_command
from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import YES, Out
from sweepstack.cli.prompt import answer, own_words
from sweepstack.core import this_host
from sweepstack.core.local_decisions import Decision, record_decision
from sweepstack.evidence.sweep_holder import Takeover, same, take_over
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, No, PlatformError, Unsure
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.operations.strays.other_backends import ask_backend, backend_of
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.ssh.platform import SshPlatform
from sweepstack.teardown.ownership import who


def command(
    box: Annotated[
        str | None,
        typer.Argument(metavar="BOX", help="A box whose machine was renamed: take it over under the new name."),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept on record.")] = "",
    renamed_from: Annotated[
        str, typer.Option("--renamed-from", metavar="HOST", help="This computer was HOST before. Needs no stack.")
    ] = "",
    held_by: Annotated[
        str,
        typer.Option(
            "--from", metavar="BACKEND", help="The lost backend that holds a box of this sweep, as `up` names it."
        ),
    ] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Take a sweep over from a lost backend or a renamed machine."""
    out = Out(as_json=json)
    if renamed_from:
        return adopt_name(renamed_from, out)
    reason = own_words("--reason", reason)
    if not reason:
        raise Unsure('why? It is kept on record: --reason "…"')
    target = Target.find_sweep(stack)
    return adopt_box(target, box, reason, out) if box else adopt(target, reason, out, held_by)


def adopt_name(host: str, out: Out) -> int:
    """Records that this computer had the name `host` before. Exit 0: recorded.

    From then on evidence in folders, a local backend and boxes on this machine are found under both names.
    """
    file = this_host.also_known_as(host)
    platform = load_platform("local")
    account = platform.account()
    if isinstance(platform, LocalPlatform):
        platform.answer_for(f"{host}/{account.rpartition('/')[2]}")
    out.document({"host": host, "names": list(this_host.names()), "file": str(file), "next": []})
    out.line(f"this computer had the name {host} before: recorded in {file}")
    out.line("evidence, state and boxes on record under that name are now looked for here")
    return YES


def adopt_box(target: Target, name: str, reason: str, out: Out) -> int:
    """Records that the machine of a box was renamed. Exit 0: its new name counts as the account of the box."""
    sources = open_sources(target)
    box = sources.state.box(name)
    if box is None:
        there = ", ".join(box.name for box in sources.state.boxes) or "none"
        by_hand = f"{import_command(target.stack, name, 'PLATFORM:ID')}    (a box that was rented by hand)"
        raise No(
            f"there is no box {name} in the state (there: {there})",
            [f"sweepctl status --stack {target.stack}", by_hand],
        )
    platform = load_platform(box.adapter)
    if not isinstance(platform, LocalPlatform | SshPlatform):
        raise No(f"box {name} is on {box.adapter}, which knows it by its account and not by a machine's name")
    following = [f"sweepctl status --stack {target.stack}"]
    try:
        now = platform.answer_for(box.account)
    except PlatformError as error:
        raise No(f"box {name}: {error}. Nothing was changed", following) from error
    decision = Decision(
        what="machine renamed",
        by=who(),
        at=datetime.now(UTC),
        reason=reason,
        platform=box.adapter,
        native_id=box.native_id,
        verb="adopt",
        box=box.name,
        account=box.account,
        stack=target.stack,
        identity=box.identity,
        found=now,
    )
    path = record_decision(decision)
    out.document({"stack": target.stack, "box": name, "account": box.account, "now": now, "next": following})
    out.line(f"{now} counts as {box.account} from now on (recorded there, and in {path})")
    out.next(following)
    return YES


def adopt(target: Target, reason: str, out: Out, held_by: str = "") -> int:
    """Takes the sweep over from the lost backend that holds it. Exit 0: this backend holds it now.

    `held_by`: the backend that a box of the sweep names, for evidence that is a copy without its lease."""
    sources = open_sources(target)
    store = sources.store
    if store is None:
        raise Unsure(
            f"the evidence can't be used, so the sweep can't be taken over: {sources.problem}",
            [f"sweepctl status --stack {target.stack}"],
        )
    ours = backend_of(target.root)
    try:
        lease = store.lease()
        held = lease.backend if lease is not None else ours
    except EvidenceDamaged as error:
        held = f"a record that can't be read ({error})"
    if held_by and not same(held, ours) and not same(held, held_by):
        raise No(
            f"the evidence is held by the state in {held}, not by {held_by}: nothing was taken over",
            [f"sweepctl status --stack {target.stack}"],
        )
    held = held_by or held
    if same(held, ours):
        following = _following(sources)
        out.document({"stack": target.stack, "held_by": ours, "taken": False, "next": following})
        out.line(f"this backend ({ours}) holds {target.stack}, or none does: nothing to take over")
        out.next(following)
        return YES
    asked = ask_backend(held, target.stack, target.root)
    if asked.there:
        raise No(f"the state in {held} {asked.words}: nothing was taken over. Use it", [asked.there])
    out.line(f"held by   the state in {held}")
    out.line(f"which     {asked.words}")
    out.line(f"taken to  {ours}")
    if not sys.stdin.isatty():
        raise No(
            "there is no terminal to ask at: only a person may take a sweep over",
            [f'sweepctl adopt --stack {target.stack} --reason "{reason}"    (at a terminal)'],
        )
    prompt = (
        f"two states of one sweep rent twice. Is the other one lost? Type the stack's name to go on ({target.stack}): "
    )
    if answer(prompt) != target.stack:
        raise No("not taken over; nothing was written", [f"sweepctl status --stack {target.stack}"])
    now = datetime.now(UTC)
    taken = Takeover(held_by=held, taken_to=ours, by=who(), at=now, reason=reason, answered=asked.words)
    try:
        take_over(store, taken)
    except EvidenceError as error:
        raise Unsure(
            f"who holds the sweep can't be written: {error}", [f"sweepctl status --stack {target.stack}"]
        ) from error
    following = _following(sources)
    out.document({"stack": target.stack, "held_by": ours, "taken": True, "next": following})
    out.line(f"{target.stack} is held by this backend from now on; recorded in the evidence")
    out.next(following)
    return YES


def _following(sources: Sources) -> list[str]:
    stack = sources.target.stack
    first = "" if sources.known else f"pulumi stack init {stack} && "
    return [
        f"{first}pulumi up --stack {stack}    (finds its boxes by their tags; rents none of them again)",
        f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)",
    ]
