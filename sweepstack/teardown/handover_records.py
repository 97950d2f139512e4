"""Records of ends and stops that the host itself, or a person at a console, has to finish.

There is one record for each native id, in the evidence (`records/handovers/`), or on this computer if the evidence
can't be written. It says what we did, what the host accepted, since when nothing answers there, and what a person
confirmed. None of it counts for a host that answers: each look asks the host first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from pydantic import AwareDatetime, Field, ValidationError

from sweepstack.core.records import Record
from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import EvidenceError, EvidenceMissing
from sweepstack.onbox.common.xdg import data_folder

if TYPE_CHECKING:
    from sweepstack.evidence.store import EvidenceStore
    from sweepstack.teardown.box_context import BoxAt


class Confirmation(Record):
    """A person's confirmation that the bill has ended: what the console showed (`saw`), and when (`at`).

    `tried`: how a connection at that moment failed; `other_keys`: host keys of another machine that has the address
    now, as the person named them.
    """

    box: str
    native_id: str
    by: str = Field(min_length=1)
    at: AwareDatetime
    saw: str = Field(min_length=1)
    tried: str
    written_at: AwareDatetime
    other_keys: tuple[str, ...] = ()


class Handover(Record):
    """A verb that was allowed and has begun. `by`: who finishes it; `native`: the platform's name for it; `way`: why it
    was allowed; `manual`: the person's step.

    `ended_at`: when the host proved that nothing of the box is left, or runs; `accepted_at`: when it accepted the
    command; `silent_at`: since when nothing answered there, set once that had lasted. `bills_after`: USD per hour that
    it costs while it stands still after that, None if not known; `release`: the person's step that ends that cost, too.
    """

    box: str
    native_id: str
    verb: Literal["stop", "destroy"]
    by: Literal["ssh", "person"]
    native: str
    way: str
    manual: str = ""
    begun_at: AwareDatetime
    ended_at: AwareDatetime | None = None
    accepted_at: AwareDatetime | None = None
    silent_at: AwareDatetime | None = None
    confirmed: Confirmation | None = None
    bills_after: float | None = 0.0
    release: str = ""

    def over(self, native_id: str) -> bool:
        """Whether the verb is finished for this very id, provided that nothing answers at its address now."""
        if self.native_id != native_id:
            return False
        if self.confirmed is not None:
            return self.confirmed.native_id == native_id and self.confirmed.box == self.box and self.verb == "destroy"
        return self.by == "ssh" and self.accepted_at is not None and self.silent_at is not None

    @property
    def rented_on(self) -> str:
        """What is left for a person to do, while the host still answers, or no person has said that it is gone."""
        if self.by == "ssh":
            return f"{self.native} was asked for, and that it took effect is not proved"
        here = "nothing of it is left on its host" if self.ended_at is not None else "its host could not be asked"
        return f"{here}; it bills on until a person does this ({self.native}): {self.manual or 'end it'}"


def handover_of(store: EvidenceStore | None, native_id: str) -> Handover | None:
    """The record of this native id; None if there is none. One on this computer, which is there only if the evidence
    could not be written, comes first. Raises EvidenceError."""
    here = kept_here(native_id)
    if here is not None or store is None:
        return here
    return store.record(_name(native_id), Handover)


def begun_before(store: EvidenceStore | None, native_id: str, way: str) -> Handover | None:
    """The same for an end that is allowed by `way`. For a box that was given up by name, None if the evidence can't be
    read; for any other, raises EvidenceError."""
    try:
        return handover_of(store, native_id)
    except EvidenceError:
        if way != "abandoned":
            raise
        return None


def known_handover(box: BoxAt) -> Handover | None:
    """The record of this box; None also if the evidence can't be read: then nothing counts as finished."""
    try:
        return handover_of(box.evidence.usable, box.native_id)
    except EvidenceError:
        return None


def keep_handover(store: EvidenceStore | None, known: Handover) -> Handover:
    """Writes the record, in place of an earlier one for this id, and returns it. Raises EvidenceError.

    A box that was given up by name ends without evidence, too: if the evidence can't be written, its record is kept on
    this computer (`kept_here`; docs/adr/015).
    """
    try:
        if store is None:
            raise EvidenceMissing("the evidence can't be used")
        store.update_record(_name(known.native_id), Handover, lambda _before: known)
    except EvidenceError as error:
        if known.way != "abandoned":
            raise
        path = _file(known.native_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomically(path, known.model_dump(mode="json"))
        except OSError as full:
            raise EvidenceMissing(f"{error}; and {path} could not be written: {full.strerror}") from error
        return known
    _take_away(known.native_id)
    return known


def forget_handover(store: EvidenceStore | None, native_id: str) -> None:
    """Removes the record, since the box runs. Idempotent. Raises EvidenceError."""
    _take_away(native_id)
    if store is not None:
        store.update_record(_name(native_id), Handover, lambda _before: None)


def _take_away(native_id: str) -> None:
    """Removes this computer's record, which counts before the evidence's. Raises EvidenceMissing if it is there and
    can't be removed."""
    try:
        _file(native_id).unlink(missing_ok=True)
    except OSError as error:
        if kept_here(native_id) is not None:
            raise EvidenceMissing(
                f"{_file(native_id)} says how the end of {native_id} stood before, and can't be taken away: "
                f"{error.strerror}. Take it away, then run the command again"
            ) from error


def kept_here(native_id: str) -> Handover | None:
    """The record on this computer; None if there is none that can be read."""
    try:
        return Handover.model_validate_json(_file(native_id).read_bytes())
    except (OSError, ValidationError):
        return None


def _file(native_id: str) -> Path:
    return data_folder() / "handovers" / f"{quote(native_id, safe='')}.json"


def _name(native_id: str) -> str:
    return f"handovers/{quote(native_id, safe='')}.json"
