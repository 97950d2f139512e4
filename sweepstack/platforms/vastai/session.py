"""One operation on vast.ai: its key, account and deadline, and the proofs of what is there."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import PlatformError, StillCreating, Unreachable, WrongAccount
from sweepstack.onbox.host.platform import BoxRecord, Wait
from sweepstack.platforms.common import keys
from sweepstack.platforms.common.box_session import Names, first_of
from sweepstack.platforms.common.deadline import Deadline, Watch
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.vastai import KEY
from sweepstack.platforms.vastai.api import VERB_SECONDS, Client, Row
from sweepstack.platforms.vastai.states import record_of

READ_AGE_SECONDS = 8.0
"""Operations that only read may use answers of this age, unless a write of ours came after: a preview of 100 boxes is
one list call, even when the engine asks for them slowly."""
ACCOUNT_AGE_SECONDS = 20.0
"""For so long the answer to whose key this is may be reused: a key's account never changes, and another key is asked
about on its own."""
PROVED_SECONDS = 30.0
"""For so long a proof that a box is gone is reused: a destroy proves it, and its caller asks again."""
POLL_SECONDS = 2.0
MOST_POLL_SECONDS = 12.0
"""The longest pause between two looks, while other boxes of this process wait for the rate limit."""
NAMES = Names("vast.ai", "vastai", "instances")
_ID = re.compile(r"[1-9]\d{0,17}")


@dataclass(frozen=True)
class Session:
    """One operation with one key, whose account is known. Make it with `open`."""

    client: Client
    account: str
    deadline: Deadline

    @classmethod
    def open(cls, deadline: Deadline | None = None, *, account: str = "", age: float = 0.0) -> Session:
        """Asks vast.ai for the account of the current key. Raises WrongAccount when `account` is another one;
        NotAuthorized, Unreachable. `age`: seconds that the answer may be old, besides `ACCOUNT_AGE_SECONDS`."""
        deadline = deadline or Deadline(VERB_SECONDS, elastic=True)
        client = Client(account)
        at_hand = str(client.user(deadline, age=max(age, paced(ACCOUNT_AGE_SECONDS)))["id"])
        if account and account != at_hand:
            raise WrongAccount(
                f"this was rented with the vast.ai account {account}, and the key at hand is that of account "
                f"{at_hand}: nothing was done. Next: {keys.way(KEY)} with a key of {account}"
            )
        return cls(client, at_hand, deadline)

    def with_deadline(self, seconds: float) -> Session:
        """The same session with a deadline of its own, which the user can't cancel: for what must be proved or undone
        in any case."""
        return replace(self, deadline=Deadline(seconds, elastic=seconds >= VERB_SECONDS))

    def record(self, row: Row) -> BoxRecord:
        """The record of an instance's row."""
        return record_of(row, self.account, self.client.state.ended)

    def row(self, identifier: int, *, age: float = 0.0, since: float | None = None) -> Row | None:
        """An instance's row; None only when it is proved gone by three answers: the list filtered by its id lacks it,
        its own endpoint says `null`, and the key still belongs to the same account.

        `age`: seconds that the list may be old. `since`: accept only a list that began after this moment (monotonic);
        callers that wait for the same end then share it."""
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
        """Like `row`, for callers that poll: the list may be up to `age` seconds old, but not from before `since`
        (monotonic). Absence is proved as by `row`."""
        row = self._listed(identifier, age, since)
        return self.row(identifier) if row is None else row

    def _listed(self, identifier: int, age: float, since: float | None) -> Row | None:
        if since is not None:
            age = max(0.0, min(age, time.monotonic() - since))
        return self.client.listed(identifier, self.deadline, age=age, forgotten=since is not None)

    def poll_seconds(self, behind: str = "") -> float:
        """Seconds between two looks: a list needs one request for each 25 boxes. `behind`: see `AccountState.pace`."""
        state = self.client.state
        return state.pace(paced(POLL_SECONDS * state.pages), paced(MOST_POLL_SECONDS), behind)

    def watch(self, what: str, wait: Wait | None = None, *, behind: str = "", later: bool = False) -> Watch:
        """A Watch that looks every `poll_seconds`, until this session's deadline. `wait`: receives the progress.
        `later`: as in `Watch`."""
        return Watch(self.deadline, what, lambda: self.poll_seconds(behind), wait, later=later)

    def tagged(self, tag: str, *, age: float = 0.0) -> list[Row]:
        """The instances with exactly this label. Empty only when two answers agree: the list filtered by the label, and
        the account's count of it. Raises Unreachable.

        An instance that this process rented and the list lacks is asked for by its id: the list may be older.
        """
        listed = {row["id"]: row for row in self.client.labelled([tag], self.deadline, age=age)}
        made = self.client.state.made.get(tag)
        if made is not None and made not in listed and (row := self.client.instance(made, self.deadline)) is not None:
            listed[made] = row
        if not listed:
            listed = self._uncounted(tag, age)
        return [row for row in listed.values() if row.get("label") == tag]

    def _uncounted(self, tag: str, age: float) -> dict[int, Row]:
        """The second check when a list lacks a label: the account's count of it, else the list of all instances."""
        counts = self.client.labels(self.deadline, age=age)
        if counts is None:
            return self.client.instances(self.deadline, age=age)
        return {row["id"]: row for row in self._counted(counts, [tag], 0.0)} if counts.get(tag) else {}

    def prefixed(self, prefix: str, *, age: float = 0.0) -> list[Row]:
        """The instances whose label begins with `prefix`, by id; for the empty prefix also those without a label."""
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
        """The rows with these labels. Raises Unreachable when vast.ai counts an instance that it does not list."""
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
        """The box with this tag, None when it is proved that there is none. `known`: see `first_of`."""
        found = [self.record(row) for row in self.tagged(tag, age=age)]
        return first_of(found, known, NAMES) if found else None


def box_number(native_id: str) -> int:
    """The contract number in a box's native id. Raises PlatformError when the id is no number."""
    if not _ID.fullmatch(native_id):
        raise PlatformError(f"{native_id[:80]!r} is no box of vast.ai: their ids are numbers")
    return int(native_id)


def still_creating(record: BoxRecord, *reasons: str) -> StillCreating:
    """The error for a box that exists and bills but is not ready: it carries the id and what is known of the box."""
    return StillCreating(record.native_id, record.outputs(), [reason for reason in reasons if reason])
