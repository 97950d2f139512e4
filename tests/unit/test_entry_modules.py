"""Evidence is opened and platforms are loaded where a command, a handler or an answer begins; what is below gets them.

It gets a context (`BoxContext`, `VolumeContext`) or the evidence (`Evidence`), each of which opens at first use, and
once. Only an entry makes one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_architecture import CODE, ROOT, tree

__all__ = ["tree"]

OPENERS = frozenset({"EvidenceStore.open", "load_platform", "Evidence", "BoxContext", "VolumeContext"})
COMMANDS, HANDLERS = "sweepstack/cli/commands/", "sweepstack/provider/resources/"
LATE = "it is what opens at first use"
MANY = "asks all accounts or volumes of a sweep, by their names"
START = "each command of a sweep begins with it"
EXCEPT = {
    "sweepstack/evidence/open_evidence.py": ({"EvidenceStore.open"}, LATE),
    "sweepstack/teardown/box_context.py": ({"load_platform", "Evidence", "BoxContext"}, LATE),
    "sweepstack/operations/volumes/end_check.py": ({"load_platform", "Evidence"}, LATE),
    "sweepstack/operations/volumes/mounting_sweeps.py": (
        {"Evidence"},
        "finds the evidence of other stacks in their states",
    ),
    "sweepstack/evidence/publish.py": ({"EvidenceStore.open"}, "compares two places by their addresses"),
    "sweepstack/evidence/stack_copy.py": ({"EvidenceStore.open"}, "keeps a file at an address"),
    "sweepstack/status/engine/state.py": (
        {"load_platform", "BoxContext"},
        "makes the context of a box of the state, and the way to a volume of it, for commands",
    ),
    "sweepstack/provider/resources/teardown.py": ({"BoxContext"}, "makes the context of a state, for handlers"),
    "sweepstack/provider/resources/want_gone.py": ({"BoxContext"}, "judges boxes that the program names no more"),
    "sweepstack/provider/resources/market.py": ({"load_platform"}, "asks an account before there is a box"),
    "sweepstack/operations/pull.py": ({"load_platform"}, "reads the volume of a box that does not answer"),
    "sweepstack/operations/balances.py": ({"load_platform"}, "asks an account, and no box"),
    "sweepstack/provider/configuration.py": ({"load_platform"}, "asks whose a key is, before there is a resource"),
    "sweepstack/provider/split_invoke.py": ({"Evidence"}, "it is the entry of the program's question"),
    "sweepstack/operations/sweep/sources.py": ({"EvidenceStore.open"}, START),
    "sweepstack/operations/sweep/target.py": ({"EvidenceStore.open"}, START),
    "sweepstack/operations/strays/beside_sweep.py": ({"load_platform", "Evidence"}, MANY),
    "sweepstack/operations/strays/volumes.py": ({"load_platform"}, MANY),
    "sweepstack/operations/strays/accounts.py": ({"load_platform"}, MANY),
    "sweepstack/operations/strays/known_states.py": ({"EvidenceStore.open"}, MANY),
    "sweepstack/extensions/answers/all_sweeps.py": (
        {"EvidenceStore.open"},
        "reads the ledgers of all sweeps of a backend",
    ),
    "sweepstack/operations/strays/judge.py": ({"EvidenceStore.open", "VolumeContext"}, MANY),
    "sweepstack/operations/volumes/volumes_now.py": ({"load_platform"}, MANY),
    "sweepstack/operations/sweep/collect.py": ({"load_platform"}, MANY),
    "sweepstack/operations/market.py": ({"load_platform"}, "asks markets before there is a box"),
}
"""Other modules: what they may call, and why."""


def opened_below_an_entry(root: Path) -> list[str]:
    """Calls of what opens evidence or loads a platform, outside of commands, handlers and the modules of EXCEPT."""
    complaints = []
    for path in sorted(one for folder in CODE for one in (root / folder).rglob("*.py")):
        place, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        if place.startswith(COMMANDS) or not any(f"{name}(" in text for name in OPENERS):
            continue
        syntax = ast.parse(text)
        if _is_handler(place, syntax):
            continue
        allowed, _ = EXCEPT.get(place, (set(), ""))
        complaints += [
            f"{place}:{node.lineno}: {name}() is an entry's; take what it gives as a parameter"
            for node in ast.walk(syntax)
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in OPENERS - allowed
        ]
    return complaints


def _is_handler(place: str, syntax: ast.Module) -> bool:
    """Whether the module defines the handler of a resource."""
    bases = [base for node in syntax.body if isinstance(node, ast.ClassDef) for base in node.bases]
    return place.startswith(HANDLERS) and any(ast.unparse(base).startswith("Handler[") for base in bases)


def test_only_entries_open() -> None:
    complaints = opened_below_an_entry(ROOT)
    assert not complaints, "\n" + "\n".join(complaints)


def test_each_exception_is_used() -> None:
    """A module that opens less leaves the list, or gets a shorter entry."""
    for place, (allowed, _) in EXCEPT.items():
        calls = [node for node in ast.walk(ast.parse((ROOT / place).read_text())) if isinstance(node, ast.Call)]
        assert allowed == OPENERS & {ast.unparse(node.func) for node in calls}, place


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("sweepstack/operations/power.py", "store = EvidenceStore.open(uri)\n", 1),
        ("sweepstack/provider/resources/run_or_stop.py", "class Stop: ...\nplatform = load_platform(adapter)\n", 1),
        ("sweepstack/operations/strays/beside_sweep.py", "def late():\n    return BoxContext(facts, adapter)\n", 1),
        ("sweepstack/provider/resources/box.py", "class B(Handler[I, S]):\n    platform = load_platform(adapter)\n", 0),
        ("sweepstack/cli/commands/wait.py", "store = EvidenceStore.open(uri)\n", 0),
        ("sweepstack/operations/power.py", "from sweepstack.platforms.registry import load_platform\n", 0),
    ],
)
def test_an_opening_below_an_entry_is_seen(tree: Callable[[str, str], Path], name: str, text: str, count: int) -> None:
    assert len(opened_below_an_entry(tree(name, text))) == count
