"""`sweepctl finish --box BOX`: pulls, verifies, approves and ends one box; the others run on.

The same steps as `finish`, but one `pulumi up` ends the box: it brings `boxes.BOX.want: gone` and the approval from the
stack file, as a pull request would. Cells of the box that did not start move to the boxes that stay.
"""

from __future__ import annotations

from sweepstack.cli.collect import look
from sweepstack.cli.commands.approve import sweep as approving
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.finish.sweep import Silent, accept_facts, engine, spelled
from sweepstack.cli.commands.pull import fetch as pulling
from sweepstack.cli.commands.verify import receipt as verifying
from sweepstack.cli.engine_mend import require_engine
from sweepstack.cli.output import NO, UNSURE, YES, No, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.observe import look_up
from sweepstack.status.next_commands import first_hung
from sweepstack.status.snapshot import BoxSnapshot, Snapshot


def finish_box(target: Target, options: ApproveOptions, box: str, out: Out) -> int:
    """Exit 0 only if the platform proves that the box is gone; the rest of the sweep stays as it is."""
    stack = target.stack
    quiet = Out(as_json=False) if not out.as_json else Silent()
    with Progress("looking"):
        sources = open_sources(target)
        require_engine(sources)
        snapshot = look(sources)
    box_snapshot = _box_snapshot(snapshot, box, stack)
    approved = box_snapshot.verdict.allowed or (box_snapshot.proposed is not None and box_snapshot.proposed.allowed)
    if not approved:
        _refuse_at_work(box_snapshot, stack)
        without_profile = accept_facts(target, options, [box_snapshot])
        _say(out, f"sweepctl pull --stack {stack}")
        if (code := pulling.pull(open_sources(target), quiet)) != YES:
            return code
        _say(out, f"sweepctl verify --stack {stack}")
        # A No may be about cells that still run elsewhere; the approval checks the cells of this box.
        if (code := verifying.verify(open_sources(target), quiet)) == UNSURE:
            return code
        if without_profile:
            raise without_profile
        _say(out, spelled(stack, options))
        if (code := approving.approve(target, options, quiet)) != YES:
            return code
    if target.file.write_want(box, "gone"):
        _say(out, f"boxes.{box}.want: gone    (written to {target.file.shown})")
    _say(out, f"pulumi up --stack {stack} --yes")
    code = engine(target, "up", out)
    return code if code != YES else _last_look(target, box_snapshot, out)


def _box_snapshot(snapshot: Snapshot, box: str, stack: str) -> BoxSnapshot:
    by_name = {box_snapshot.box.name: box_snapshot for box_snapshot in snapshot.box_snapshots}
    if box not in by_name:
        hint = did_you_mean(box, by_name)
        raise No(
            f"there is no box {box} in the state (there: {', '.join(by_name) or 'none'}){hint}",
            [f"sweepctl status --stack {stack}"],
        )
    return by_name[box]


def _refuse_at_work(box_snapshot: BoxSnapshot, stack: str) -> None:
    """Raises No now if the box still runs cells: the approval would refuse that only after a long pull."""
    if box_snapshot.journal is None or not box_snapshot.seen.runner_alive:
        return
    running = [name for name, progress in box_snapshot.journal.cells.items() if progress.state == "running"]
    if running:
        box = box_snapshot.box.name
        wait = f"sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack} --box {box}"
        raise No(
            f"box {box} is at work: {', '.join(running[:5])}",
            [
                *(first_hung(stack, [box_snapshot]) or [wait]),  # a hung cell never becomes done
                f'sweepctl approve --stack {stack} --abandon {box} --reason "…"    (gives up its data)',
            ],
        )


def _say(out: Out, command: str) -> None:
    if not out.as_json:
        out.line(f"$ {command}")


def _last_look(target: Target, box_snapshot: BoxSnapshot, out: Out) -> int:
    """Asks the platform for this native id: the engine's exit code is no proof."""
    box = box_snapshot.box
    try:
        record = look_up(box.context().platform, box.native_id, box.account, rented=box.teardown.rented)
        gone, problem = record.phase is Phase.GONE, record.note if record.emptied else "it is still there"
    except PlatformError as error:
        gone, problem = False, str(error)
    following = [f"sweepctl status --stack {target.stack}"]
    out.document({"stack": target.stack, "box": box.name, "native_id": box.native_id, "gone": gone, "next": following})
    if gone:
        out.line(f"box {box.name} ({box.native_id}) is gone and bills no more; the others run on")
    else:
        out.line(f"UNKNOWN box {box.name} ({box.native_id}): {problem}; it may still bill", style="yellow")
    out.next(following)
    return YES if gone else NO
