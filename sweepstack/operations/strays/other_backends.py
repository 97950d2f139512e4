"""Which backend the engine uses here, and which other backend or project holds a sweep."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from sweepstack.config.project import project_name
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import folder_here, is_local, name_of_backend, same, taken_over
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.status.engine.state import StackMissing, backend_url, read_state
from sweepstack.teardown.ownership import Owner

Claim = tuple[str, str, str]
"""Who holds a sweep, and which: (backend, project, stack)."""
ASKING_SECONDS = 120.0
"""After so long no further backend is asked: a job can name any number of backends that do not answer. The one that is
being asked then may take as long as `read_state` allows."""
STORAGE = ("s3", "gs", "azblob")
"""Schemes of backends in object storage: the engine sends its token to none of them, and to every other address."""


def backend_of(root: Path) -> str:
    """The name of the backend that the engine uses here. Raises SweepstackError."""
    return name_of_backend(backend_url(root))


def adopt_command(stack: str) -> str:
    """What a person types first if another backend holds the sweep and is lost."""
    return f'sweepctl adopt --stack {stack} --reason "…"    (another backend holds it; where that is lost)'


def renamed_from(store: EvidenceStore | None, root: Path) -> str:
    """The project that the evidence belongs to, if Pulumi.yaml here has another name; else ""."""
    try:
        return store.marker.project if store is not None and store.marker.project != project_name(root) else ""
    except SweepstackError:
        return ""


def held_by_another(store: EvidenceStore | None, root: Path) -> bool:
    """Whether an `up` here would be refused because another backend holds the sweep. False if that is not known."""
    try:
        lease = store.lease() if store is not None else None
        return lease is not None and not same(lease.backend, backend_of(root))
    except SweepstackError:
        return False


@dataclass(frozen=True)
class BackendAnswer:
    """What another backend says of a stack. `there`: the command that goes on there if it still holds the stack; "" if
    it holds nothing of it, or can't be asked."""

    backend: str
    words: str
    there: str = ""


def ask_backend(held: str, stack: str, root: Path) -> BackendAnswer:
    """Asks the backend `held`, by its name in a lease, for this stack. Blocks as `read_state`. Never raises.

    A folder in which the engine never was is not asked: the engine would write its own files there, and then a disk
    that is not mounted looks like a backend without the stack.
    """
    folder = folder_here(held)
    if is_local(held) and folder is None:
        return BackendAnswer(held, "is on another computer: it can't be asked from here")
    bare = BackendAnswer(held, "shows no state now, but its disk may not be mounted: mount it first")
    try:
        if folder is not None and not stat.S_ISDIR((folder / ".pulumi").stat().st_mode):
            return bare
    except FileNotFoundError:
        return bare
    except OSError as error:
        return BackendAnswer(held, f"can't be read here: {error.strerror}")
    if "://" not in held:
        return BackendAnswer(held, "can't be asked")
    url = f"file://{folder}" if folder is not None else held
    try:
        state = read_state(stack, root, backend=url)
    except StackMissing:
        return BackendAnswer(held, "answers, and has no such stack")
    except SweepstackError as error:
        return BackendAnswer(held, f"does not answer as a backend: {error}")
    if state.empty:
        return BackendAnswer(held, "answers, and holds nothing of this stack")
    there = f"PULUMI_BACKEND_URL={shlex.quote(url)} sweepctl status --stack {shlex.quote(stack)}"
    return BackendAnswer(held, f"answers and still holds {stack}", there)


def gate_of(others: Sequence[BackendAnswer]) -> tuple[str, str]:
    """Which other backend answers and still has the sweep, as text, and the command that goes on there; "" if none
    does. What it has ends only there, whatever a person says here."""
    return next(((f"the state in {one.backend} {one.words}", one.there) for one in others if one.there), ("", ""))


class Backends:
    """The other backends that hold sweeps of the project at `root`. Each is asked once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._answers: dict[Claim, BackendAnswer] = {}
        self._asking: Deadline | None = None

    def holding(
        self,
        stores: Sequence[EvidenceStore],
        owner: Owner | None = None,
        named_by_box: Sequence[EvidenceStore] = (),
    ) -> tuple[BackendAnswer, ...]:
        """The backends, other than the one used here, that hold the sweep of a box or a volume that no state has: by
        the lease in its evidence, or by what the box says, if no person took that over.

        `stores`: the evidence that this checkout knows. `named_by_box`: the evidence that was found only through the
        box, however it spells that address; `owner`: what the box says. A volume has neither.
        """
        trusted, unread = _leases(stores)
        by_box, unread_too = _leases(named_by_box)
        held = [*trusted, *by_box]
        unread += unread_too
        said = [(owner.backend, owner.project, owner.stack)] if owner is not None and owner.backend else []
        if not held and not said:
            return tuple(unread)
        try:
            ours = backend_of(self._root)
        except SweepstackError:
            ours = ""  # then it may be another one: it is asked
        held += [
            claim for claim in said if not any(taken_over(store, claim[0], ours) for store in (*stores, *named_by_box))
        ]
        others = [claim for claim in dict.fromkeys(held) if not same(claim[0], ours)]
        return (*unread, *(self._answer(claim, trusted=claim in trusted) for claim in others))

    def _answer(self, claim: Claim, *, trusted: bool) -> BackendAnswer:
        """`trusted`: evidence says so that not the box alone names. A job can write what the box says, and the engine
        sends its token to a web address."""
        backend, project, stack = claim
        if not trusted and not is_local(backend) and backend.partition(":")[0] not in STORAGE:
            return BackendAnswer(backend, "only the box names: it is not asked")
        if claim not in self._answers:
            self._asking = self._asking or Deadline(ASKING_SECONDS)
            if not self._asking.left():
                return BackendAnswer(backend, "was not asked: others took all the time that there was for it")
            self._answers[claim] = ask_backend(backend, _spelled(project, stack, self._root), self._root)
        return self._answers[claim]


def _leases(stores: Sequence[EvidenceStore]) -> tuple[list[Claim], list[BackendAnswer]]:
    """The leases in evidence. A lease that can't be read counts as one of another backend that can't be asked."""
    claims, unread = list[Claim](), list[BackendAnswer]()
    for store in stores:
        try:
            lease = store.lease()
        except EvidenceError as error:
            unread.append(BackendAnswer(f"a lease that can't be read ({error})", "can't be asked"))
        else:
            claims += [(lease.backend, store.marker.project, store.marker.stack)] if lease is not None else []
    return claims, unread


def _spelled(project: str, stack: str, root: Path) -> str:
    """The stack as the engine knows it in this checkout."""
    try:
        here = project_name(root)
    except SweepstackError:
        here = ""
    return stack if not project or project == here else f"organization/{project}/{stack}"
