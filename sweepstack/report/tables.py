"""The tables of a sweep's page: its cells, its results, the evidence with digests."""

from __future__ import annotations

from sweepstack.core.results import Group, axes_of, columns_of, groups, mean_text, n_text, short_codes, text
from sweepstack.report.blocks import Block, Facts, Table, Text
from sweepstack.report.curves import SEED
from sweepstack.report.facts import SweepFacts
from sweepstack.report.money import stamp
from sweepstack.teardown.signatures import given_by


def cells(facts: SweepFacts) -> Table:
    """Every cell of the roster, and those that were dropped, with what became of it."""
    rows = [
        (
            cell.name,
            cell.state,
            cell.box or "",
            str(cell.attempts),
            cell.step,
            cell.loss,
            "" if cell.elapsed_seconds is None else f"{cell.elapsed_seconds / 60:.1f}",
            cell.note,
        )
        for cell in facts.view.cells
    ]
    headers = ("cell", "state", "box", "tries", "step", "loss", "minutes", "note")
    return Table(f"All {len(rows)} cells", headers, rows, right=frozenset({3, 4, 5, 6}))


def results(facts: SweepFacts) -> list[Block]:
    """The section on results: means over seeds where there are seeds, and a row for each cell."""
    found, roster = facts.results, facts.snapshot.roster
    if not found:
        return [Text("No cell that is verified left a value.")]
    axes, columns, codes = axes_of(roster), columns_of(found), short_codes(one.code for one in found if one.code)
    blocks: list[Block] = []
    over = [SEED] if SEED in axes else []
    made = groups(roster, found, over)
    if over:
        blocks.append(_means(made, columns, codes))
    blocks += [
        Text(
            f"{_named(group)}: averaged over different code, {', '.join(codes[code] for code in group.codes)}.", "warn"
        )
        for group in made
        if group.mixed
    ]
    rows = [
        (
            one.name,
            *(text(one.params.get(axis)) for axis in axes),
            *(text(one.values.get(name)) for name in columns),
            codes.get(one.code or "", "?"),
        )
        for one in found
    ]
    right = frozenset(range(1 + len(axes), 1 + len(axes) + len(columns)))
    blocks.append(Table("Values of each verified cell", ("cell", *axes, *columns, "code"), rows, right=right))
    blocks += [Text(f"{one.name} is {one.state}: {one.note}.", "warn") for one in found if one.note]
    missing = len(roster) - len({one.name for one in found})
    if missing:
        blocks.append(
            Text(f"{missing} of {len(roster)} cells are not here: they are not verified, or were waived.", "warn")
        )
    return blocks


def _means(made: list[Group], columns: list[str], codes: dict[str, str]) -> Table:
    shown_columns = [name for name in columns if any(name in group.values for group in made)]
    axes = list(made[0].axes)
    rows = [
        (
            *([text(group.axes[axis]) for axis in axes] or ["all cells"]),
            n_text(group),
            *(mean_text(group.values.get(name)) for name in shown_columns),
        )
        for group in made
    ]
    headers = (*(axes or ["cells"]), "n", *shown_columns)
    right = frozenset(range(len(headers) - 1 - len(shown_columns), len(headers)))
    return Table("Mean ± std over seeds (n - 1)", headers, rows, right=right, find=False)


def _named(group: Group) -> str:
    return ", ".join(f"{axis} {text(value)}" for axis, value in group.axes.items()) or "all cells"


def evidence(facts: SweepFacts) -> list[Block]:
    """The section on evidence: the receipt, what it says of each cell, and the journals' heads."""
    receipt = facts.snapshot.receipt
    where = facts.view.evidence or "not known"
    if receipt is None:
        why = facts.snapshot.evidence_problem or "`sweepctl pull --verify` writes the first one"
        return [Facts([("place", where)]), Text(f"There is no receipt: {why}.", "warn")]
    state = {cell.name: cell.state for cell in facts.view.cells}
    rows = []
    for cell in receipt.cells:
        broken, now = facts.snapshot.broken.get(cell.name), state.get(cell.name, cell.state)
        size = sum(file.size for file in cell.files)
        rows.append(
            (
                cell.name,
                cell.state if now == cell.state else f"{cell.state}, now {now}",
                "" if cell.box is None else f"{cell.box} g{cell.generation} #{cell.attempt}",
                str(len(cell.files)),
                f"{size / 1e6:.3f}",
                cell.manifest or "",
                cell.config_digest,
                "; ".join([*cell.reasons, *([broken] if broken else [])]),
            )
        )
    boxes = [
        (one.box, one.native_id, str(one.generation), str(len(one.cells)), one.journal_head) for one in receipt.boxes
    ]
    pairs = [
        ("place", where),
        ("receipt", facts.snapshot.receipt_digest or receipt.digest),
        ("verified", f"{receipt.verified} of {receipt.total} cells, by this receipt"),
        ("roster", receipt.roster_digest),
        ("artifacts", receipt.artifacts_digest),
    ]
    headers = ("cell", "state", "sealed by", "files", "MB", "manifest", "config", "why")
    return [
        Facts(pairs),
        Table(
            "What was verified, by the latest receipt", headers, rows, right=frozenset({3, 4}), mono=frozenset({5, 6})
        ),
        Table(
            "Journals that it rests on",
            ("box", "id", "generation", "cells", "head"),
            boxes,
            mono=frozenset({4}),
            find=False,
        ),
    ]


def decisions(facts: SweepFacts) -> list[Block]:
    """The section on what people decided, and what was refused."""
    rows = [row for row in _approved(facts) if row]
    for name, reason in sorted(facts.snapshot.dropped.items()):
        rows.append(("dropped", name, "by the stack file", "", reason))
    for name, retry in sorted(facts.retries.items()):
        rows.append(("retry", name, retry.by, stamp(retry.at), retry.reason))
    for loss in facts.snapshot.losses:
        rows.append(
            (
                "lost",
                f"{len(loss.cells)} cells of {loss.box}: {', '.join(loss.cells)}",
                "",
                stamp(loss.at),
                loss.why,
            )
        )
    for story in facts.boxes:
        for entry in story.journal.entries if story.journal else ():
            if entry["event"] == "cell-refused":
                what = f"{entry.get('cell')} on {story.label}"
                rows.append(("refused", what, "the runner", str(entry["time"])[:16], str(entry.get("reason", ""))))
    blocks: list[Block] = []
    if rows:
        headers = ("what", "of what", "by whom", "when (UTC)", "why")
        blocks.append(Table("Approved, waived, abandoned, dropped, retried, lost, refused", headers, rows))
    locked = [(gate.box, reason) for gate in facts.view.gates if gate.state == "locked" for reason in gate.reasons]
    if locked:
        blocks.append(Table("Why the end of a box is refused now", ("box", "why"), locked, find=False))
    return blocks or [Text("Nothing was waived, abandoned, dropped or refused, and no approval was given.")]


def _approved(facts: SweepFacts) -> list[tuple[str, ...]]:
    """Each approval once, with all that it allows, waives and abandons."""
    given = {}
    found = [approval for approval in (facts.snapshot.approval, *facts.clearances.values()) if approval is not None]
    for approval in sorted(found, key=lambda one: len(one.signatures)):  # of one signed in turn, that with most
        given[approval.at, approval.by, approval.waivers_digest, approval.receipt] = approval
    rows: list[tuple[str, ...]] = []
    for approval in sorted(given.values(), key=lambda one: one.at):
        who = (given_by(approval), stamp(approval.at))
        actions = ", ".join(f"{action.verb} {action.box} ({action.native_id})" for action in approval.actions)
        ground = f"receipt {approval.receipt}" if approval.receipt else "without a receipt"
        rows.append(("approved", actions, *who, f"{ground}; until {stamp(approval.expires)}"))
        rows += [("waived", one.cell, *who, one.reason) for one in approval.waive]
        rows += [
            ("abandoned", f"{one.box} ({one.native_id}), {one.verb}", *who, one.reason) for one in approval.abandon
        ]
        rows += [
            ("waived", f"{one.files} files ({one.bytes} bytes) of no cell on {one.box}", *who, one.reason)
            for one in approval.unclaimed
        ]
    return rows
