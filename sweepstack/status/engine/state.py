"""What the engine's state remembers of a sweep, read through `pulumi stack export` and never changed.

The state is a claim: who reads it compares it with the records in the evidence and with what the platform says. Its
file is looked at for two questions alone: whether there is a good copy of a damaged one, and whether a word is in it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from sweepstack.config.project import project_name
from sweepstack.core import schema
from sweepstack.core.box_end import StopFacts, TeardownFacts
from sweepstack.core.budget import Budget
from sweepstack.core.lease_terms import NONE
from sweepstack.core.records import Approval, Record
from sweepstack.core.resources import BoxState, GateState, IdentityState, QueueState, VolumeState
from sweepstack.core.spelling import camel
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.platforms.registry import load_platform, volume_channel
from sweepstack.status.engine import call as engine_call
from sweepstack.status.engine import stack_keys
from sweepstack.status.engine.call import EngineCall, ExportCall
from sweepstack.teardown.box_context import BoxContext, BoxFacts

STOP = "stop"
_TOKEN = "sweepstack:index:"
_NO_SECRET = "Next: take `additionalSecretOutputs` out of the program, then pulumi up --stack {stack}"
_NO_STACK = ("no stack named", "no stacks found")

_FOLDER = ".pulumi"
"""Of the engine, in a backend that is a folder: `stacks/PROJECT/STACK.json`, and copies beside it and in `backups`."""

_BACKUPS = "~", ".old"
"""What `install -b` adds to the name of a file that it replaces: GNU, and BSD or macOS."""


class StackMissing(SweepstackError):
    """The backend answered and has no stack of this name."""


class _Entry(Record):
    """What the state has of one resource: its inputs and outputs by the provider's own model, and this beside them."""

    urn: str
    policies: tuple[str, ...] = ()
    """Those of all entries of the state: any one that has it is enough."""
    to_delete: bool = False
    """A replacement took its place, and its own delete did not go through yet: it still bills."""
    unread: dict[str, str] = Field(default={})
    """What is not needed, does not read, and counts as not there: its name → why."""


class IdentityEntry(_Entry, IdentityState):
    """The sweep's name and where its evidence is."""


class VolumeEntry(_Entry, VolumeState):
    """A tier that outlives the boxes. `kept`: another stack keeps it; `guarded`: this one does, and may end it."""

    def channel(self, mount: str) -> Channel:
        """Reads what lies on it, as if it were mounted at `mount`. Raises as `load_platform` and `volume_channel`."""
        return volume_channel(load_platform(self.adapter), self.native_id, mount)


class BoxEntry(_Entry, BoxState):
    """A rented box."""

    @property
    def rented_from(self) -> str:
        """Its rental platform; else its adapter, which says it."""
        return self.platform or self.adapter

    @property
    def leased(self) -> bool:
        """Whether it stops, or tells, when no command has looked at it for so long."""
        return self.lease not in (None, NONE)

    @property
    def ends_itself(self) -> bool:
        """Whether a command on it, by itself, ends its bill: once its queue is drained, or its lease is over."""
        issue = self.teardown.stop.issue if self.teardown.stop is not None else None
        return (self.when_done == STOP or self.leased) and issue is not None and issue.by == "ssh"

    def context(self, verb: str = "") -> BoxContext:
        """The box with its `facts`, its platform and its evidence, with nothing opened yet."""
        return BoxContext(self.facts(verb), self.adapter)

    def facts(self, verb: str = "") -> BoxFacts:
        """What the check of its end asks for, or that of a stop. Raises SweepstackError for a verb that it has not."""
        does: TeardownFacts | StopFacts | None = self.teardown
        if verb == STOP:
            does = self.teardown.stop
        elif verb not in ("", self.teardown.verb):
            does = None
        if does is None:
            raise SweepstackError(f"box {self.name} has no verb {verb!r} on {self.adapter}")
        return replace(
            BoxFacts.of(self),
            verb=verb or self.teardown.verb,
            kills=does.kills,
            keeps=does.keeps,
            policies=self.policies,
            urn=self.urn,
        )


class QueueEntry(_Entry, QueueState):
    """The cells of one box."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The cells' names."""
        return frozenset(cell.name for cell in self.cells)


class GateEntry(_Entry, GateState):
    """What the state says about a box's lock."""


@dataclass(frozen=True)
class Pending:
    """An operation that was cut off: the engine keeps it, and mentions it nowhere."""

    kind: str
    token: str
    name: str


@dataclass(frozen=True)
class StackState:
    """The resources of one sweep as the state has them. `problems`: entries of ours that could not be read."""

    stack: str
    identity: IdentityEntry | None = None
    identities: tuple[IdentityEntry, ...] = ()
    """All of them: after `pulumi up --replace` the old one may be on its way out."""
    volumes: tuple[VolumeEntry, ...] = ()
    boxes: tuple[BoxEntry, ...] = ()
    queues: tuple[QueueEntry, ...] = ()
    gates: tuple[GateEntry, ...] = ()
    pending: tuple[Pending, ...] = ()
    problems: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    """The policies that its entries have, as text, each once; a queue's is only what it was made with."""
    missing: tuple[str, ...] = ()
    """Names of resources that others refer to and that are not there: the engine runs no command with such a state."""

    @property
    def empty(self) -> bool:
        """Whether nothing of ours is in the state."""
        return not (self.identity or self.volumes or self.boxes or self.queues or self.gates or self.problems)

    def box(self, name: str) -> BoxEntry | None:
        """The box of this name that is in use."""
        return next((box for box in self.boxes if box.name == name and not box.to_delete), None)

    def queue_of(self, native_id: str) -> QueueEntry | None:
        """The queue on this box."""
        return next((queue for queue in self.queues if queue.box == native_id), None)

    def gate_of(self, native_id: str) -> GateEntry | None:
        """The gate of this box."""
        return next((gate for gate in self.gates if gate.box == native_id), None)


EntryT = TypeVar("EntryT", bound=_Entry)


def parse_export(stack: str, export: dict[str, Any]) -> StackState:
    """The typed view of what `pulumi stack export` printed. An entry that does not parse becomes a problem."""
    deployment = export.get("deployment") or {}
    resources = deployment.get("resources") or []
    problems: list[str] = []
    policies = _policies(resources)

    def entries(kind: str, model: type[EntryT]) -> tuple[EntryT, ...]:
        found = []
        for resource in resources:
            if resource.get("type") != _TOKEN + kind:
                continue
            urn = str(resource.get("urn", ""))
            known = schema.entry(resource) | {"urn": urn, "policies": policies}
            known["to_delete"] = bool(resource.get("delete", False))
            if why := schema.why_too_new(known.get(schema.KEY), schema.STATE):
                problems.append(f"{kind} {urn.rsplit('::', 1)[-1]}: {why}")
            fields = model.model_fields
            if secret := sorted(n for n in schema.hidden(resource) if n in fields and fields[n].is_required()):
                why = f"the state keeps {', '.join(map(camel, secret))} as a secret. {_NO_SECRET.format(stack=stack)}"
                problems.append(f"{kind} {urn.rsplit('::', 1)[-1]} ({resource.get('id', 'no id')}): {why}")
                continue
            entry, why = _read(model, known)
            found += [entry] if entry else []
            if why:
                problems.append(f"{kind} {urn.rsplit('::', 1)[-1]} ({resource.get('id', 'no id')}): {why}")
        return tuple(found)

    identities = entries("Identity", IdentityEntry)
    return StackState(
        stack=stack,
        identity=next((entry for entry in identities if not entry.to_delete), identities[0] if identities else None),
        identities=identities,
        volumes=entries("Volume", VolumeEntry),
        boxes=entries("Box", BoxEntry),
        queues=entries("Queue", QueueEntry),
        gates=entries("Gate", GateEntry),
        pending=tuple(
            Pending(
                kind=str(operation.get("type", "")),
                token=str(operation.get("resource", {}).get("type", "")),
                name=str(operation.get("resource", {}).get("urn", "")).rsplit("::", 1)[-1],
            )
            for operation in deployment.get("pending_operations") or []
        ),
        problems=tuple(problems),
        policies=policies,
        missing=_missing(resources),
    )


_WHOLE: Mapping[str, type[Record]] = {"approval": Approval, "budget": Budget}
"""What is taken whole or not at all: what a newer version added to it may take back what the rest says."""


def _read(model: type[EntryT], known: Mapping[str, Any]) -> tuple[EntryT | None, str]:
    """The entry, without what it can do without and what does not read; else None. And why, where `unread` does not
    say it. Names that are not ours pass: an older or newer provider may have written them."""
    unread: dict[str, str] = {}
    for name in [name for name in _WHOLE if known.get(name) is not None]:
        try:
            _WHOLE[name].model_validate(known[name])
        except ValidationError as error:
            unread[name] = schema.first(error)
    known = {name: value for name, value in known.items() if name not in unread} | {"unread": unread}
    try:
        return model.model_validate(known, extra="ignore"), ""
    except ValidationError as error:
        why, bad = schema.first(error), {str(at) for item in error.errors() for at in item["loc"][:1]}
    if not bad or any(model.model_fields[name].is_required() for name in bad):
        return None, why
    return model.model_validate({name: value for name, value in known.items() if name not in bad}, extra="ignore"), why


def _policies(resources: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Also of entries that can't be read otherwise."""
    ours = {_TOKEN + kind for kind in ("Identity", "Box", "Gate", "Volume")}
    known = (schema.entry(one) for one in resources if one.get("type") in ours)
    return tuple(dict.fromkeys(one["policy"] for one in known if isinstance(one.get("policy"), str)))


def _missing(resources: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The names of what these resources refer to and what is not among them; of providers, which `pulumi state repair`
    does not mend, nothing is said."""
    there = {resource.get("urn") for resource in resources}
    named: dict[str, None] = {}
    for resource in resources:
        of_properties = (resource.get("propertyDependencies") or {}).values()
        for urn in (
            resource.get("parent"),
            resource.get("deletedWith"),
            *(resource.get("dependencies") or ()),
            *(urn for urns in of_properties for urn in urns or ()),
        ):
            if urn and urn not in there:
                named[str(urn).rsplit("::", 1)[-1]] = None
    return tuple(named)


def list_stacks(project_root: Path, *, every_project: bool = False) -> list[str]:
    """The names of this project's stacks in the backend, sorted; with `every_project` those of all, the others' with
    their project (`organization/project/stack`). Blocks like `read_state`. Raises SweepstackError."""
    words = ["stack", "ls", *(["--all"] if every_project else []), "--json"]
    said = _said(EngineCall([engine_call.find_engine(), *words], project_root))
    try:
        return sorted(str(stack["name"]) for stack in json.loads(said))
    except (ValueError, TypeError, KeyError) as error:
        raise SweepstackError(f"`pulumi stack ls` printed something unforeseen: {error}") from error


def was_ever_up(stack: str, project_root: Path) -> bool:
    """Whether the engine's history has an update of this stack, one that failed among them. Blocks like `read_state`.
    Raises SweepstackError."""
    return last_update(stack, project_root) is not None


def last_update(stack: str, project_root: Path) -> dict[str, Any] | None:
    """The latest update in the engine's history of this stack, with its `config`; None where there was none. Blocks
    like `read_state`. Raises SweepstackError."""
    words = ["stack", "history", "--stack", stack, "--json", "--page-size", "1"]
    said = _said(EngineCall([engine_call.find_engine(), *words], project_root), stack)
    try:
        found: list[dict[str, Any]] = json.loads(said)
        return dict(found[0]) if found else None
    except (ValueError, TypeError, KeyError) as error:
        raise SweepstackError(f"`pulumi stack history` printed something unforeseen: {error}") from error


def backend_url(project_root: Path) -> str:
    """The URL of the backend that the engine works with there. Blocks like `read_state`. Raises SweepstackError."""
    said = _said(EngineCall([engine_call.find_engine(), "whoami", "--verbose", "--json"], project_root))
    try:
        return str(json.loads(said)["url"])
    except (ValueError, TypeError, KeyError) as error:
        raise SweepstackError(f"`pulumi whoami` printed something unforeseen: {error}") from error


def read_state(stack: str, project_root: Path, *, backend: str = "") -> StackState:
    """Asks the engine for the stack's state. Blocks for a fraction of a second, `engine_call.SECONDS` at most.
    `backend`: the URL of another one than that which is used here.

    Raises StackMissing when the backend has no such stack, SweepstackError with the engine's own words otherwise.
    """
    return Export(stack, project_root, backend=backend).state()


class Export:
    """The same in two steps: the engine begins to answer at once, and `state` waits for it. Raises as `read_state`.

    `begun`: a call that may have begun before; one of another stack or project is not waited for.
    """

    def __init__(self, stack: str, project_root: Path, *, backend: str = "", begun: ExportCall | None = None) -> None:
        self._stack = stack
        same = begun is not None and not backend and (begun.stack, begun.project_root) == (stack, project_root)
        self._call = begun if begun is not None and same else ExportCall(stack, project_root, backend)

    def state(self) -> StackState:
        said = _said(self._call, self._stack)
        try:
            export = json.loads(said)
        except ValueError as error:
            raise SweepstackError(f"`pulumi stack export` printed something that is not JSON: {error}") from error
        stack_keys.note(export, self._stack, self._call.root)
        return parse_export(self._stack, export)


def _said(call: EngineCall, stack: str = "") -> bytes:
    """What the engine prints. Raises StackMissing, SweepstackError with the engine's own words."""
    code, out, complaint = call.answer()
    if code != 0:
        known = call.backend or os.environ.get("PULUMI_BACKEND_URL", "")
        missing = any(words in complaint for words in _NO_STACK)
        # The engine says of a folder where its file belongs that there is no stack.
        back = ""
        if missing or "checkpoint" in complaint:
            back = way_back(lambda: known or backend_url(call.root), stack, project_name(call.root))
        if missing and not back:
            raise StackMissing(f"there is no stack {stack} in this backend. Next: pulumi up --stack {stack}")
        what = f"the state of {stack}" if stack else "what stacks there are"
        asks = f"sweepctl doctor{f' --stack {stack}' if stack else ''}"
        way = back or f". What is rented goes on billing meanwhile. Next: {asks}    (asks the backend)"
        raise SweepstackError(f"{what} could not be read; pulumi said: {complaint or 'nothing'}{way}")
    return out


def way_back(backend: Callable[[], str], stack: str, project: str) -> str:
    """`Next: …`, the command that puts a copy of the state file in its place, or takes the file away where none reads;
    what has its name now goes out of the way first, and is kept.

    "" where the file reads, is not there, or can't be looked at from here: the engine's own words say what is wrong.
    `backend` tells the URL, and may raise SweepstackError. Reads only, and no other project's file. What has happened
    since the copy was made is found again by its tag, by the next `pulumi up`.
    """
    try:
        url = backend()
    except SweepstackError:
        return ""
    root = _folder(url)
    for file in _files(root, stack, project) if root is not None else ():
        if root is not None and file.exists() and not _reads(file):
            return f". Next: {_command(file, root, stack)}"
    return ""


def may_hold(word: str, stack: str, project: str) -> bool:
    """Whether the state may hold `word`, without the engine: True where the environment names no folder as backend, or
    where the file can't be read."""
    root = _folder(os.environ.get("PULUMI_BACKEND_URL", ""))
    if root is None:
        return True
    try:
        files = _files(root, stack, project)
        packed = any(file.with_suffix(".json.gz").exists() for file in files)
        return packed or any(word.encode() in file.read_bytes() for file in files if file.exists())
    except OSError:
        return True


def _folder(url: str) -> Path | None:
    """The engine's folder in a backend that is one."""
    return Path(url.removeprefix("file://")).expanduser() / _FOLDER if url.startswith("file://") else None


def _files(root: Path, stack: str, project: str) -> tuple[Path, Path]:
    return root / "stacks" / project / f"{stack}.json", root / "stacks" / f"{stack}.json"


def _command(file: Path, root: Path, stack: str) -> str:
    copies = [file.with_name(f"{file.name}.bak"), *root.glob(f"backups/{file.parent.name}/{stack}/*.json")]
    there = sorted((copy for copy in copies if copy.is_file()), key=lambda copy: copy.stat().st_mtime_ns, reverse=True)
    aside = away(file, "broken")
    good = next((copy for copy in there if _reads(copy)), None)
    if good is not None:  # what does not read may be newer, and is kept
        if file.is_file() and not any(os.path.lexists(f"{file}{end}") for end in _BACKUPS):
            replaces = shlex.join(["install", "-b", "-m", "600", str(good), str(file)])
            return f"{replaces}    (its newest copy; keeps what was there)"
        return f"{aside} && {shlex.join(['cp', str(good), str(file)])}    (its newest copy)"
    return f"{aside} && pulumi stack init {stack}    (no copy of it reads; `pulumi up` then adopts the boxes)"


def away(path: Path, why: str) -> str:
    """The command that moves a file or a folder aside, to a name beside it that is free."""
    names = chain([f"{path}.{why}"], (f"{path}.{why}-{number}" for number in count(2)))
    return shlex.join(["mv", str(path), next(name for name in names if not os.path.lexists(name))])


def _reads(file: Path) -> bool:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("checkpoint", found.get("deployment")), dict)
