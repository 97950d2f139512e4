"""What goes wrong, when: a list of rules, or one drawn from a seed. The same plan gives the same faults.

A rule looks at the calls whose `METHOD /route/{template}` it matches; from the `nth` of them on it fires, `times`
times. Kinds of `TRANSPORT` are carried out by the server for every platform; a simulator adds kinds of its own, which
it reads from `Request.faults`. A kind that nobody knows is refused: a misspelt fault would be a test that can't fail.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

TRANSPORT: Mapping[str, str] = {
    "too_many": "429; `retry_after`: seconds, None for no such header",
    "error_before": "`status` (500) instead of doing anything",
    "error_after": "`status` (500) after it was done",
    "lost_request": "the connection is closed before anything was done; `reset`: with a TCP reset",
    "lost_answer": "it is done, then the connection is closed without an answer; `reset`: with a TCP reset",
    "hang_before": "no answer for `seconds` (600), then the connection is closed; nothing was done",
    "hang_after": "it is done, then no answer for `seconds` (600), then the connection is closed",
    "slow": "`seconds` (1) later than usual",
    "truncated": "it is done, and half of the answer's body comes",
    "html_before": "a proxy's HTML page with `status` (502) instead of doing anything",
    "html_after": "a proxy's HTML page with `status` (502) after it was done",
    "html_ok": "a proxy's HTML page with status 200 instead of doing anything",
    "not_json": "it is done, and the body is no JSON although it says so",
}
BEFORE = frozenset({"too_many", "error_before", "lost_request", "hang_before", "html_before", "html_ok"})
AFTER = frozenset(TRANSPORT) - BEFORE - {"slow"}


@dataclass
class Fault:
    """One rule. `match`: shell pattern over `METHOD /template`; `times`: None for ever; `account`: id, None for all.

    `box`: only calls that come with the own key of this box; None for all, also those of customers.
    """

    kind: str
    match: str = "*"
    nth: int = 1
    times: int | None = 1
    account: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    seen: int = 0
    fired: int = 0
    box: str | None = None

    def get(self, name: str, default: Any) -> Any:
        """One of the rule's parameters."""
        return self.params.get(name, default)

    def spent(self) -> bool:
        """It will not fire any more."""
        return self.times is not None and self.fired >= self.times


class FaultPlan:
    """Rules that are asked on every call. `kinds`: those that the simulator has beside `TRANSPORT`. Thread-safe."""

    def __init__(self, rules: Iterable[Fault] = (), kinds: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self.kinds = frozenset(TRANSPORT) | frozenset(kinds)
        self.rules: list[Fault] = []
        for rule in rules:
            self.append(rule)

    def add(
        self,
        kind: str,
        match: str = "*",
        *,
        nth: int = 1,
        times: int | None = 1,
        account: str | None = None,
        box: str | None = None,
        **params: Any,
    ) -> Fault:
        """One more rule; what is left over are the kind's parameters."""
        return self.append(Fault(kind, match, nth, times, account, params, box=box))

    def append(self, rule: Fault) -> Fault:
        """One more rule. ValueError: a kind that does not exist, or numbers that never fire."""
        if rule.kind not in self.kinds:
            raise ValueError(f"no fault {rule.kind!r}; there are: {', '.join(sorted(self.kinds))}")
        if rule.nth < 1 or (rule.times is not None and rule.times < 1):
            raise ValueError(f"{rule.kind}: nth and times count from 1")
        with self._lock:
            self.rules.append(rule)
        return rule

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        with self._lock:
            self.rules.clear()

    def drop(self, kind: str) -> None:
        """No rule of this kind fires any more."""
        with self._lock:
            self.rules = [rule for rule in self.rules if rule.kind != kind]

    def fire(self, call: str, account: str | None = None, box: str | None = None) -> dict[str, Fault]:
        """The rules that fire on this call (`METHOD /template`), by kind; at most one that ends the call early.

        `account`: whose key it comes with; `box`: which box's own key.
        """
        found: dict[str, Fault] = {}
        with self._lock:
            for rule in self.rules:
                if not fnmatchcase(call, rule.match) or rule.account not in (None, account):
                    continue
                if rule.box not in (None, box):
                    continue
                rule.seen += 1
                blocked = rule.kind in found or (rule.kind in BEFORE | AFTER and (BEFORE | AFTER) & found.keys())
                if rule.seen >= rule.nth and not rule.spent() and not blocked:
                    rule.fired += 1
                    found[rule.kind] = rule
        return found

    def unfired(self) -> list[Fault]:
        """Rules that have not fired once: what a test of a fault asserts to be empty."""
        return [rule for rule in self.rules if not rule.fired]

    def outline(self) -> list[dict[str, Any]]:
        """All rules as plain JSON values."""
        return [vars(rule) for rule in self.rules]


@dataclass(frozen=True)
class Choice:
    """A fault that a seed may draw: on which calls it makes sense, and values for its parameters."""

    kind: str
    match: str
    params: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def draw(seed: int, menu: Sequence[Choice], *, most: int = 6, latest: int = 5) -> list[Fault]:
    """Up to `most` rules from the menu, each at the 1st to `latest`th matching call, once to three times.

    Finite, so whatever polls gets there in the end; the same seed gives the same rules on every machine.
    """
    dice = random.Random(f"faults {seed}")
    rules = []
    for _ in range(dice.randint(1, most)):
        choice = dice.choice(menu)
        params = {name: dice.choice(values) for name, values in sorted(choice.params.items())}
        rules.append(Fault(choice.kind, choice.match, dice.randint(1, latest), dice.randint(1, 3), None, params))
    return rules
