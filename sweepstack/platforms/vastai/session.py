"""One verb of one account: the key, whose it is, how long it may take; and what can be proved with these."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweepstack.onbox.common.errors import PlatformError, StillCreating, Unreachable, WrongAccount
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.vastai.api import VERB_SECONDS, Client
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
    deadline: Deadline

    @classmethod
    def open(cls, deadline: Deadline | None = None, *, account: str = "", age: float = 0.0) -> Session:
        """Asks whose key is at hand. Raises WrongAccount when it is not `account`'s; NotAuthorized, Unreachable."""
        deadline = deadline or Deadline(VERB_SECONDS, elastic=True)
        client = Client()
        at_hand = str(client.user(deadline, age=max(age, paced(ACCOUNT_AGE_SECONDS)))["id"])
        if account and account != at_hand:
            raise WrongAccount(
                f"this was rented with the vast.ai account {account}, and the key at hand is that of account "
                f"{at_hand}: nothing was done. Next: set VAST_API_KEY to a key of {account}"
            )
        return cls(client, at_hand, deadline)

    def with_deadline(self, seconds: float) -> Session:
        """The same with time of its own, which nobody can cut: for what must be known or undone whatever happens."""
        return replace(self, deadline=Deadline(seconds, elastic=seconds >= VERB_SECONDS))

    def record(self, row: Row) -> BoxRecord:
        """The record of a row."""
        return record_of(row, self.account, self.client.state.ended)

    def row(self, identifier: int, *, age: float = 0.0, since: float | None = None) -> Row | None:
        """What vast.ai says of an instance; None only when three answers agree that there is none: the account's, the
        list's, which is asked for its id, and the instance's own `null`.

        `since`: that list may be up to `age` old if it was begun after this moment (monotonic), so that those who all
        wait for an end share it."""
        proved = self.client.state.gone.get(identifier)
        if proved is not None and time.monotonic() - proved < paced(PROVED_SECONDS):
            return None
        row = self._listed(identifier, age, since)
        if row is not None:
            return row
        if since is None and age and (row := self.client.listed(identifier, self.deadline)) is not None:
            return row
        row = self.client.instance(identifier, self.deadline)
        if row is None:
            Session.open(self.deadline, account=self.account, age=0.0 if since is not None else age)
            if identifier in self.client.state.ended:
                self.client.state.gone[identifier] = time.monotonic()
        return row

    def watched(self, identifier: int, *, age: float, since: float) -> Row | None:
        """Like `row`, for who looks again and again since that moment (monotonic): the list may be up to `age` old, and
        not older than that. That it is not there is proved as by `row`."""
        row = self._listed(identifier, age, since)
        return self.row(identifier) if row is None else row

    def _listed(self, identifier: int, age: float, since: float | None) -> Row | None:
        if since is not None:
            age = max(0.0, min(age, time.monotonic() - since))
        return self.client.listed(identifier, self.deadline, age=age, forgotten=since is not None)

    def poll_seconds(self, behind: str = "") -> float:
        """How often to look: a list takes a request for each 25 boxes. `behind`: see `AccountState.pace`."""
        state = self.client.state
        return state.pace(paced(POLL_SECONDS * state.pages), paced(MOST_POLL_SECONDS), behind)

    def watch(self, what: str, wait: Wait | None = None, *, behind: str = "", later: bool = False) -> Watch:
        """Looks at the pace of `poll_seconds`. `wait`: who hears of it; its deadline is the session's. `later`: as in
        `Watch`."""
        return Watch(self.deadline, what, lambda: self.poll_seconds(behind), wait, later=later)

    def tagged(self, tag: str, *, age: float = 0.0) -> list[Row]:
        """The instances with this whole label, those that live first, each kind by age. None at all only when two
        answers agree: the list's, which is asked for the label, and the account's count of it. Raises Unreachable.

        What this process rented is asked for by its number where the list lacks it: a list may be older than that.
        """
        listed = {row["id"]: row for row in self.client.labelled([tag], self.deadline, age=age)}
        made = self.client.state.made.get(tag)
        if made is not None and made not in listed and (row := self.client.instance(made, self.deadline)) is not None:
            listed[made] = row
        if not listed:
            listed = self._uncounted(tag, age)
        rows = [row for row in listed.values() if row.get("label") == tag]
        return sorted(rows, key=lambda row: (self.record(row).phase is Phase.ENDING, row["id"]))

    def _uncounted(self, tag: str, age: float) -> dict[int, Row]:
        """What a list that lacks a label is checked by: the account's count of it, or all of the account."""
        counts = self.client.labels(self.deadline, age=age)
        if counts is None:
            return self.client.instances(self.deadline, age=age)
        return {row["id"]: row for row in self._counted(counts, [tag], 0.0)} if counts.get(tag) else {}

    def prefixed(self, prefix: str, *, age: float = 0.0) -> list[Row]:
        """The instances whose label begins with this, by id; with the empty prefix those without a label, too."""
        whole = self.client.kept(age)
        counts = self.client.labels(self.deadline, age=age) if prefix and whole is None else None
        if counts is None:
            rows = list((whole or self.client.instances(self.deadline, age=age)).values())
        else:
            rows = self._counted(counts, [label for label in counts if label.startswith(prefix)], age)
        said = {row["id"]: row.get("label") or "" for row in rows}
        ours = {key for key, label in said.items() if not isinstance(label, str) or label.startswith(prefix)}
        return sorted((row for row in rows if row["id"] in ours), key=lambda row: str(row["id"]))

    def _counted(self, counts: Mapping[str, int], wanted: Sequence[str], age: float) -> list[Row]:
        """The rows with these labels. Raises Unreachable where vast.ai goes on counting one that it does not list."""
        rows = self.client.labelled(wanted, self.deadline, age=age)
        if lacking := {label for label in wanted if counts.get(label)} - {row["label"] for row in rows}:
            counts = self.client.labels(self.deadline) or {}  # one may have ended in between
            rows = self.client.labelled(wanted, self.deadline)
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
