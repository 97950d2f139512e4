"""Each change of the engine's diff in words: what is made, and every setting before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from sweepstack.config.policy import Policy, read
from sweepstack.config.secret_rules import is_secret_value, without_given
from sweepstack.core.policy_text import NONE, PolicyText, read_copy
from sweepstack.core.roster import in_order
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.review.digest import BY_ITSELF, FREE, changed_inputs
from sweepstack.review.model import SettingChange
from sweepstack.review.plan import MAKING, SAME, Plan, Step
from sweepstack.review.spelled import NOTHING, spelled
from sweepstack.teardown.policy_order import stricter, weaker

WORDS: Mapping[str, str] = {
    "account": "account that pays",
    "adapter": "platform's adapter",
    "approval": "approval of its end",
    "artifacts": "artifact",
    "artifacts_digest": "rules of the artifacts, by digest",
    "bid": "bid, USD an hour",
    "box": "native id of the box",
    "box_name": "box",
    "budget": "budget",
    "claims": "what a folder of the host must be",
    "dropped": "dropped cell",
    "evidence": "evidence",
    "generation": "generation of the box",
    "guarded": "a check decides its end",
    "identity": "random name of the sweep",
    "ignore_balance": "rented without enough balance, because",
    "image": "container image",
    "job": "job",
    "job.code": "code, by digest",
    "job.env": "environment variable",
    "job.run": "command of a cell",
    "keep_until": "wanted until",
    "kept": "another stack keeps it",
    "leaving": "approval of the boxes that leave",
    "least_bytes": "least bytes of the artifacts",
    "lease": "lease",
    "links": "link of a mount",
    "list_lag": "seconds in which the platform's list may lack it",
    "max_price": "highest price, USD an hour",
    "metrics": "curve of a cell",
    "mounts": "volume that is mounted at",
    "name": "name",
    "named": "boxes of the stack file",
    "pins": "code of a cell, by digest",
    "placed": "chosen offer",
    "places": "folder of the host",
    "platform": "platform",
    "policy": "policy",
    "price_per_gb_month": "price, USD a GB-month",
    "price_per_hour": "price, USD an hour",
    "project": "project",
    "pull_to": "place of the evidence",
    "region": "region",
    "resources": "what is rented",
    "retries": "retry of the cell",
    "roster_digest": "list of cells, by digest",
    "secrets": "secrets by name",
    "size_gb": "size in GB",
    "smoke": "smoke run",
    "stack": "stack",
    "teardown": "how it ends",
    "volume": "kept volume",
    "want": "wanted",
    "when_done": "when its queue is drained",
}
"""Input → its words. Those of a field below it are its name, of which each word stands by itself."""
_VERBS = {"create": "makes", "import": "takes in", "update": "changes", "delete": "takes out"}
_KINDS = {
    "Identity": "the name and the evidence of the sweep",
    "Volume": "volume {name}",
    "Box": "box {name}",
    "Queue": "the queue of {name}",
    "Gate": "the gate of {name}",
    "sweepstack:components:Box": "the group of {name} in the engine's list",
    "sweepstack:components:Sweep": "the group of the sweep in the engine's list",
    "pulumi:pulumi:Stack": "the stack itself",
}
_RENTED = (
    "platform",
    "adapter",
    "resources",
    "image",
    "price_per_hour",
    "max_price",
    "bid",
    "placed",
    "lease",
    "budget",
)


def engine_lines(plan: Plan) -> tuple[str, ...]:
    """One line for each operation of the engine's diff, and what the provider says of a resource."""
    steps = dict.fromkeys(
        f"{_VERBS.get(step.op, 'replaces')} {_named(step)}" for step in plan.steps if step.op not in SAME
    )
    said = dict.fromkeys(one.text for one in plan.said if one.severity == "info" and one.name)
    return (*sorted(steps, key=in_order), *sorted(said, key=in_order))


def rented_lines(plan: Plan) -> tuple[str, ...]:
    """What each new box is: platform, GPUs, disk, region, image, price, lease, budget."""
    found: dict[str, list[str]] = {}
    for step in plan.of("Box"):
        if step.op in MAKING and step.new:
            known = {name: step.new[name] for name in _RENTED if step.new.get(name) not in (None, {}, [], "")}
            words = [f"{label}: {value}" for label, value in _flat("Box", {"lease": "none", **known}).items()]
            found.setdefault("; ".join(words), []).append(step.name)
    return tuple(f"rents {', '.join(dict.fromkeys(names))}: {words}" for words, names in found.items())


def setting_changes(plan: Plan) -> tuple[SettingChange, ...]:
    """Every input that changes, before and after, once for all resources that change alike. Different changes give
    different texts, and no change of an input gives none."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for step in plan.steps:
        if step.op in ("delete", "delete-replaced", "refresh", "read"):
            continue
        for what, before, after in _of_step(step):
            late = ", for the next box that is rented" if step.op == "same" and step.kind == "Box" else ""
            found.setdefault((what + late, before, after), {})[_whose(step)] = None
    return tuple(
        SettingChange(*key, tuple(sorted(found[key], key=in_order)))
        for key in sorted(found, key=lambda key: in_order(": ".join(key)))
    )


def _named(step: Step) -> str:
    return _KINDS.get(step.kind, f"{{name}} ({step.kind})").replace("{name}", step.name_of_box)


def _whose(step: Step) -> str:
    return {"Identity": "the sweep", "Volume": f"volume {step.name}"}.get(step.kind, step.name_of_box)


def _of_step(step: Step) -> Iterator[tuple[str, str, str]]:
    changed = changed_inputs(step)
    if "policy" in changed and step.kind in BY_ITSELF:
        yield from _policy(*changed.pop("policy"))
    before, after = (_flat(step.kind, {name: pair[at] for name, pair in changed.items()}) for at in (0, 1))
    for label in {**before, **after}:
        if before.get(label) != after.get(label):
            yield label, before.get(label, NOTHING), after.get(label, NOTHING)


def _flat(kind: str, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Words of each value → its text."""
    return {": ".join(labels): _told(labels[-1], value) for labels, value in _leaves(kind, inputs, "", ())}


def _told(name: str, value: Any) -> str:
    """A value in words. Of what may be a secret, by its name or in it, a digest tells whether it changes."""
    text = spelled(value)
    shown = "…" if is_secret_value(name, str(value)) else without_given(text)
    return text if shown == text else f"{shown} (digest {digest_of(value)[7:15]})"


def _leaves(kind: str, value: Any, path: str, labels: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    entries: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping) and value:
        entries = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        entries = [(str(number), item) for number, item in enumerate(value, start=1)]
    else:
        if labels and value is not None:
            yield labels, value
        return
    free = any(path == one or path.startswith(f"{one}.") for one in (*FREE.get(kind, ()), "claims", "retries"))
    for name, item in entries:
        below = name if not path else f"{path}.{name}"
        word = WORDS.get(below) or (spelled(name) if free else name.replace("_", " "))
        yield from _leaves(kind, item, below, (word,) if below in WORDS else (*labels, word))


def _policy(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """A change of the policy by what it means: weaker and stricter rules; and its texts by their digests."""
    old, new = _policy_text(before), _policy_text(after)
    yield "policy, by digest", _digest(old, before), _digest(new, after)
    if old is None or new is None:
        return
    with suppress(SweepstackError):
        was, now = read(old), read(new)
        for line in weaker(was, now):
            yield f"policy, WEAKER: {line}", "stricter", "weaker"
        looser = weaker(now, was)
        for key in stricter(was, now):
            if key in Policy.model_fields:
                yield f"policy, stricter: {key.replace('_', ' ')}", _rule(was.rules, key), _rule(now.rules, key)
        for line in (one for one in looser if one.partition(":")[0] not in Policy.model_fields):
            yield f"policy, stricter: {line}, before this change", "weaker", "stricter"


def _rule(rules: Policy, key: str) -> str:
    value = getattr(rules, key)
    return NOTHING if value is None else spelled(value)


def _policy_text(copy: Any) -> PolicyText | None:
    """The policy that binds by this copy; None where it can't be told."""
    if not copy:
        return NONE
    try:
        chains = read_copy(str(copy)).chains
    except ValueError:
        return None
    return chains[0].policy if len(chains) == 1 else None


def _digest(policy: PolicyText | None, copy: Any) -> str:
    return spelled(copy) if policy is None else policy.short if policy != NONE else NOTHING
