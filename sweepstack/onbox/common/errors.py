"""All errors of sweepstack. Each message says what happened, what still costs money, what to do.

SweepstackError
├── ConfigError            the person's input: file, key and fix are in the message
├── EvidenceError          evidence that cannot be used
│   ├── EvidenceElsewhere  a folder on another host
│   │   └── EvidenceMoved  a folder whose evidence was published to another place
│   ├── EvidenceMissing    the folder, or its marker, is not there: unknown, never "empty"
│   ├── EvidenceDamaged    a record that does not read, or whose digest is not its name
│   └── EvidenceChanged    another command wrote the same record at the same moment
├── JournalDamaged         a journal whose chain is broken
├── PlatformError          what a platform's adapter may raise (sweepstack/platforms)
│   ├── WrongAccount       the current key belongs to another account than the one that rented it
│   ├── OutcomeUnknown     a request was sent and its answer was lost: look for it by its tag first
│   ├── NotYetGone         a delete was accepted and its end is not proved yet: call again
│   ├── NotYetStopped      a stop was accepted and its end is not proved yet: call again
│   ├── Unreachable        the state is not known; it never means "gone" or "failed"
│   │   ├── RateLimited    too many requests: nothing was carried out, ask again later
│   │   └── Unproved       the platform shows the box nowhere, and has not proved that it is gone
│   ├── NoCapacity         the platform has nothing of the kind now: try the next offer
│   ├── InsufficientFunds  the account can't pay for it: no other offer will do
│   ├── NotAuthorized      no key, a wrong one, or one without the right to do this
│   │   └── NotInstalled   there is a key, and not the package that asks the platform with it
│   ├── RequestRefused     the request itself is wrong: asking again changes nothing
│   └── Unsupported        the platform can't do this at all, with the reason
│       └── Retired        the platform has taken this interface out for good (410): it is no outage
├── TeardownRefused        the check refused: nothing was deleted
├── StillCreating          created and not ready: the error carries the id and what is known
└── No                     the answer to what a person asked is no: the error carries the commands that help
    └── Unsure             the answer is not known
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ONLY_IF = "only if"
"""So begins, in brackets, the condition of a command in a message that calls something gone."""


class SweepstackError(Exception):
    """Root of all errors that sweepstack raises on purpose."""


class ConfigError(SweepstackError):
    """A mistake in what a person wrote. `problems`: one line for each mistake, with its file and key."""

    def __init__(self, message: str, problems: list[str] | None = None) -> None:
        super().__init__(message)
        self.problems = problems or []


class EvidenceError(SweepstackError):
    """Evidence that cannot be used."""


class EvidenceElsewhere(EvidenceError):
    """The evidence is a folder on another host, which the message names."""


class EvidenceMoved(EvidenceElsewhere):
    """The folder's evidence was published: it is in another place now, which the message names."""


class EvidenceMissing(EvidenceError):
    """The evidence folder or its marker is not there: what it held is not known, which does not mean that it is
    empty."""


class EvidenceDamaged(EvidenceError):
    """A record that does not parse, or whose content is not what its name says."""


class EvidenceChanged(EvidenceError):
    """Another command has written a record since it was read: nothing was written over it."""


class JournalDamaged(SweepstackError):
    """A journal line that does not parse or does not continue the chain."""


class PlatformError(SweepstackError):
    """Root of what a platform's adapter may raise."""


class NotAFile(PlatformError):
    """Something has the name of a file and is none: a folder, say. What it was asked for is not known."""


class WrongAccount(PlatformError):
    """The current key's account is not the one that rented the box."""


class OutcomeUnknown(PlatformError):
    """A request that changes things was sent and its answer was lost."""


class NotYetGone(PlatformError):
    """The platform accepted a delete; the end is not proved yet. Call again. `within`: seconds in which the platform is
    expected to prove it, 0 where it names no time; `pause`: seconds until another look can tell more."""

    def __init__(self, message: str, *, within: float = 0.0, pause: float = 0.0) -> None:
        super().__init__(message)
        self.within, self.pause = within, pause


class NotYetStopped(PlatformError):
    """The platform accepted a stop; that the box is stopped is not proved yet. Call again."""


class Unreachable(PlatformError):
    """The platform or the box did not answer: nothing is known."""


class FolderLost(WrongAccount, Unreachable):
    """The host answered, and what it kept a box in is not there: an empty folder, or one that was made anew. Whether
    the old one is lost, or only not mounted, a person knows."""


class RateLimited(Unreachable):
    """Too many requests: this one was not carried out. `retry_after`: seconds, None when the platform names none."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unproved(Unreachable):
    """The platform shows the box nowhere, which alone does not prove that it is gone. A person may confirm it.
    `same_account`: whether the account was asked, for certain, that the box was rented with."""

    same_account = False


class NoCapacity(PlatformError):
    """The platform has nothing of the kind now; nothing was rented. The next offer may work."""


class InsufficientFunds(PlatformError):
    """The account can't pay for it; nothing was rented. Other offers would fail, too."""


class NotAuthorized(PlatformError):
    """There is no key, or a wrong one, or one without the right. The message says where the key is looked for, never
    its value."""


class NotInstalled(NotAuthorized):
    """There is a key, and the vendor's package is not installed here: what the account holds is not known."""


class RequestRefused(PlatformError):
    """The request itself is wrong: it was not carried out, and asking again changes nothing."""


class Unsupported(PlatformError):
    """The platform can't do this at all; the message says what can be done instead."""


class Retired(Unsupported):
    """The platform has taken this interface out for good (410). It is no outage: nothing is asked there again."""


class TeardownRefused(SweepstackError):
    """The check refused: nothing was deleted."""


class StillCreating(SweepstackError):
    """The resource exists and bills, but is not ready. Carries its id, its outputs and the reasons, for the state."""

    def __init__(self, identifier: str, outputs: dict[str, Any], reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.identifier = identifier
        self.outputs = outputs
        self.reasons = reasons


class No(SweepstackError):
    """The answer to what a person asked is no. `next`: the commands that help, printed below the message."""

    def __init__(self, message: str, next: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.next = list(next)


class Unsure(No):
    """The answer is not known."""


def one_line(error: object) -> str:
    """An error's text, or another one, as one line, for lists of what was tried."""
    return " ".join(str(error).split())
