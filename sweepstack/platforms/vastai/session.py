"""One verb of one account: the key, whose it is, how long it may take; and what can be proved with these."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sweepstack.onbox.common.errors import PlatformError, StillCreating, Unreachable, WrongAccount
from sweepstack.onbox.host.platform import PROGRESS_SECONDS, BoxRecord, Phase, Wait
from sweepstack.platforms.common.deadline import OutOfPatience, Patience
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.vastai.api import PATIENCE_SECONDS, Client
from sweepstack.platforms.vastai.pages import Row
from sweepstack.platforms.vastai.states import record_of

READ_AGE_SECONDS = 8.0
"""Readings of so many seconds ago, if no write of ours came after, serve the verbs that only read: a preview of 100
boxes is one list, however slowly they come."""
ACCOUNT_AGE_SECONDS = 20.0
"""So old may the answer be to whose key this is. A key never changes hands, and another key is asked about anew."""
PROVED_SECONDS = 30.0
"""So long does a proved end serve whoever asks again: a destroy proves it, and its caller wants to know."""
POLL_SECONDS = 2.0
MOST_POLL_SECONDS = 12.0
"""Between two looks while other boxes of this process stand in line: it saves a list for each of them."""
_ID = re.compile(r"[1-9]\d{0,17}")


@dataclass(frozen=True)
class Session:
    """The account is checked when there is one of these."""

    client: Client
    account: str
    patience: Patience

    @classmethod
    def open(cls, patience: Patience | None = None, *, account: str = "", age: float = 0.0) -> Session:
        """Asks whose key is at hand. Raises WrongAccount when it is not `account`'s; NotAuthorized, Unreachable."""
        patience = patience or Patience(PATIENCE_SECONDS, elastic=True)
        client = Client()
        at_hand = str(client.user(patience, age=max(age, paced(ACCOUNT_AGE_SECONDS)))["id"])
        if account and account != at_hand:
            raise WrongAccount(
                f"this was rented with the vast.ai account {account}, and the key at hand is that of account "
                f"{at_hand}: nothing was done. Next: set VAST_API_KEY to a key of {account}"
            )
        return cls(client, at_hand, patience)

    def with_patience(self, seconds: float) -> Session:
        """The same with time of its own, which nobody can cut: for what must be known or undone whatever happens."""
        return replace(self, patience=Patience(seconds, elastic=seconds >= PATIENCE_SECONDS))

    def record(self, row: Row) -> BoxRecord:
        """The record of a row."""
        return record_of(row, self.account, self.client.meeting.ended)

    def row(self, identifier: int, *, age: float = 0.0, since: float | None = None) -> Row | None:
        """What vast.ai says of an instance; None only when three answers agree that there is none: the account's, the
        list's, which is asked for its id, and the instance's own `null`.

        `since`: that list may be up to `age` old if it was begun after this moment (monotonic), so that those who all
        wait for an end share it."""
        proved = self.client.meeting.gone.get(identifier)
        if proved is not None and time.monotonic() - proved < paced(PROVED_SECONDS):
            return None
        row = self._listed(identifier, age, since)
        if row is not None:
            return row
        if since is None and age and (row := self.client.listed(identifier, self.patience)) is not None:
            return row
        row = self.client.instance(identifier, self.patience)
        if row is None:
            Session.open(self.patience, account=self.account, age=0.0 if since is not None else age)
            if identifier in self.client.meeting.ended:
                self.client.meeting.gone[identifier] = time.monotonic()
        return row

    def watched(self, identifier: int, *, age: float, since: float) -> Row | None:
        """Like `row`, for who looks again and again since that moment (monotonic): the list may be up to `age` old, and
        not older than that. That it is not there is proved as by `row`."""
        row = self._listed(identifier, age, since)
        return self.row(identifier) if row is None else row

    def _listed(self, identifier: int, age: float, since: float | None) -> Row | None:
        if since is not None:
            age = max(0.0, min(age, time.monotonic() - since))
        return self.client.listed(identifier, self.patience, age=age, forgotten=since is not None)

    def poll_seconds(self, behind: str = "") -> float:
        """How often to look for a change: each list takes one request for 25 boxes. `behind`: as in `Meeting.pace`."""
        meeting = self.client.meeting
        return meeting.pace(paced(POLL_SECONDS * meeting.pages), paced(MOST_POLL_SECONDS), behind)

    def tagged(self, tag: str, *, age: float = 0.0) -> list[Row]:
        """The instances with this whole label, those that live first, each kind by age. None at all only when two
        answers agree: the list's, which is asked for the label, and the account's count of it. Raises Unreachable.

        What this process rented is asked for by its number where the list lacks it: a list may be older than that.
        """
        listed = {row["id"]: row for row in self.client.labelled([tag], self.patience, age=age)}
        made = self.client.meeting.made.get(tag)
        if made is not None and made not in listed and (row := self.client.instance(made, self.patience)) is not None:
            listed[made] = row
        if not listed:
            listed = self._uncounted(tag, age)
        rows = [row for row in listed.values() if row.get("label") == tag]
        return sorted(rows, key=lambda row: (self.record(row).phase is Phase.ENDING, row["id"]))

    def _uncounted(self, tag: str, age: float) -> dict[int, Row]:
        """What a list that lacks a label is checked by: the account's count of it, or all of the account."""
        counts = self.client.labels(self.patience, age=age)
        if counts is None:
            return self.client.instances(self.patience, age=age)
        return {row["id"]: row for row in self._counted(counts, [tag], 0.0)} if counts.get(tag) else {}

    def prefixed(self, prefix: str, *, age: float = 0.0) -> list[Row]:
        """The instances whose label begins with this, by id; with the empty prefix those without a label, too."""
        counts = self.client.labels(self.patience, age=age) if prefix else None
        if counts is None:
            rows = list(self.client.instances(self.patience, age=age).values())
        else:
            rows = self._counted(counts, [label for label in counts if label.startswith(prefix)], age)
        said = {row["id"]: row.get("label") or "" for row in rows}
        ours = {key for key, label in said.items() if not isinstance(label, str) or label.startswith(prefix)}
        return sorted((row for row in rows if row["id"] in ours), key=lambda row: str(row["id"]))

    def _counted(self, counts: Mapping[str, int], wanted: Sequence[str], age: float) -> list[Row]:
        """The rows with these labels. Raises Unreachable where vast.ai goes on counting one that it does not list."""
        rows = self.client.labelled(wanted, self.patience, age=age)
        if lacking := {label for label in wanted if counts.get(label)} - {row["label"] for row in rows}:
            counts = self.client.labels(self.patience) or {}  # one may have ended in between
            rows = self.client.labelled(wanted, self.patience)
            lacking = {label for label in lacking if counts.get(label)} - {row["label"] for row in rows}
        if lacking:
            raise Unreachable(
                f"vast.ai counts an instance with the label {min(lacking)} and lists none: what is there is not known"
            )
        return rows

    def found(self, tag: str, *, age: float = 0.0, known: str = "") -> BoxRecord | None:
        """The box with this tag; with several, the one on record (`known`), else the oldest that is not ending, and a
        note that names the others."""
        rows = self.tagged(tag, age=age)
        if not rows:
            return None
        rows.sort(key=lambda row: str(row["id"]) != known)
        record = self.record(rows[0])
        if others := [str(row["id"]) for row in rows[1:]]:
            ends = ", ".join(f"sweepctl audit --end vastai:{other}" for other in others)
            loud = f"ALSO RENTED with the tag {tag}, and may bill: {', '.join(others)}. End what is too many: {ends}"
            record = replace(record, note="; ".join(part for part in (record.note, loud) if part))
        return record


def box_number(native_id: str) -> int:
    """The contract number in a box's native id. Raises PlatformError for what can't be one."""
    if not _ID.fullmatch(native_id):
        raise PlatformError(f"{native_id[:80]!r} is no box of vast.ai: a number is what one is called")
    return int(native_id)


def still_creating(record: BoxRecord, *reasons: str) -> StillCreating:
    """It exists and bills: its id and what is known of it travel along."""
    return StillCreating(record.native_id, record.outputs(), [reason for reason in reasons if reason])


class Lasting:
    """Whether something has been so, at every look, for `seconds`: one answer may be from before."""

    def __init__(self, patience: Patience, seconds: float) -> None:
        self._patience, self._seconds = patience, seconds
        self._since: float | None = None  # seconds that were left when it began

    def so(self, now: bool) -> bool:
        """`now`: what this look says."""
        if not now:
            self._since = None
            return False
        self._since = self._patience.left() if self._since is None else self._since
        return self._since - self._patience.left() >= self._seconds


class Watch:
    """Looks again and again, at the pace that the API allows, until something is so. Tells of it every five seconds."""

    def __init__(self, session: Session, wait: Wait, what: str, *, behind: str = "", later: bool = False) -> None:
        """`behind`: as in `Session.poll_seconds`. `later`: nothing is to be seen before the first pause."""
        self._session = session
        self._behind = behind
        self._later = later
        self._patience = session.patience
        self._wait = wait
        self._what = what
        self._said = session.patience.left()

    def until(self, ready: Callable[[], bool], most: float = math.inf) -> str:
        """Returns "" when `ready()`, else why waiting ended: after `most` seconds at the latest. OutOfPatience of
        `ready` counts as that; others pass."""
        begun = self._patience.left()
        while True:
            try:
                if self._later:
                    self._later = False
                elif ready():
                    return ""
                self._tell()
                if begun - self._patience.left() >= most:
                    return f"not within {most:g} s: still waiting for {self._what}"
                pause = self._session.poll_seconds(self._behind)
                self._patience.pause(pause, self._what)
            except OutOfPatience:
                why = self._patience.why_over() or f"not within {self._patience.seconds:g} s"
                return f"{why}: still waiting for {self._what}"

    def _tell(self) -> None:
        left = self._patience.left()
        if self._said - left >= PROGRESS_SECONDS:
            self._said = left
            spent = self._patience.seconds - left
            self._wait.progress(f"waiting for {self._what}: {spent:.0f} s of at most {self._patience.seconds:g} s")
