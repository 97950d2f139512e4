"""What can go wrong, as types. The message of each is for a person: what happened, what still costs, what to do.

SweepstackError
├── ConfigError            the person's input: file, key and fix are in the message
├── EvidenceError          evidence that cannot be used
│   ├── EvidenceElsewhere  a folder on another host
│   │   └── EvidenceMoved  a folder whose evidence was published to another place
│   ├── EvidenceMissing    the folder, or its marker, is not there: unknown, never "empty"
│   ├── EvidenceDamaged    a record that does not read, or whose digest is not its name
│   └── EvidenceChanged    somebody else wrote the same record at the same moment
├── JournalDamaged         a journal whose chain is broken
├── PlatformError          what a platform's adapter may raise (sweepstack/platforms)
│   ├── WrongAccount       the credentials at hand are not those the thing was rented with
│   ├── OutcomeUnknown     a request was sent and its answer lost: look up by tag before anything else
│   ├── NotYetGone         a delete was accepted and is not proved yet: call again
│   ├── NotYetStopped      a stop was accepted and is not proved yet: call again
│   ├── Unreachable        nobody knows; never to be read as "gone" or "failed"
│   │   └── RateLimited    not now: nothing was carried out, ask again after a while
│   ├── NoCapacity         the platform has nothing of the kind now: the next offer may do
│   ├── InsufficientFunds  the account can't pay for it: no other offer will do
│   ├── NotAuthorized      no key, a wrong one, or one without the right to do this
│   ├── RequestRefused     the platform calls the request wrong: asking again changes nothing
│   └── Unsupported        the platform can't do this at all, with the reason
├── TeardownRefused        the check said no: nothing was deleted
└── StillCreating          created, not ready: the id and what is known travel with it
"""

from __future__ import annotations

from typing import Any


class SweepstackError(Exception):
    """Root of all errors that sweepstack raises on purpose."""


class ConfigError(SweepstackError):
    """A mistake in what a person wrote. `problems` holds one line each, already with file and key."""

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
    """The evidence folder or its marker is not there. Unknown, which is not the same as empty."""


class EvidenceDamaged(EvidenceError):
    """A record that does not parse, or whose content is not what its name says."""


class EvidenceChanged(EvidenceError):
    """A record that was read has been written by somebody else since: nothing was written over it."""


class JournalDamaged(SweepstackError):
    """A journal line that does not parse or does not continue the chain."""


class PlatformError(SweepstackError):
    """Root of what a platform's adapter may raise."""


class WrongAccount(PlatformError):
    """The account at hand is not the one that the box was rented with."""


class OutcomeUnknown(PlatformError):
    """A request that changes things was sent and its answer was lost."""


class NotYetGone(PlatformError):
    """A delete was accepted; that the thing is gone is not proved yet."""


class NotYetStopped(PlatformError):
    """A stop was accepted; that the box stands still is not proved yet."""


class Unreachable(PlatformError):
    """The platform or the box did not answer: nothing is known."""


class RateLimited(Unreachable):
    """Too many requests: this one was not carried out. `retry_after` in seconds, None where the platform says none."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoCapacity(PlatformError):
    """Nothing of the kind can be had now; nothing was rented. The next offer may do."""


class InsufficientFunds(PlatformError):
    """The account can't pay for it; nothing was rented. No other offer of this account will do."""


class NotAuthorized(PlatformError):
    """No key, a wrong one, or one without the right. The message says where it was looked for, never its value."""


class RequestRefused(PlatformError):
    """The platform calls the request itself wrong: it was not carried out, and asking again changes nothing."""


class Unsupported(PlatformError):
    """The platform can't do this at all; the message says what can be done instead."""


class TeardownRefused(SweepstackError):
    """The check refused: nothing was deleted."""


class StillCreating(SweepstackError):
    """The thing exists and bills, but is not ready. Carries what the engine must remember."""

    def __init__(self, identifier: str, outputs: dict[str, Any], reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.identifier = identifier
        self.outputs = outputs
        self.reasons = reasons
