"""A project's policy as it is carried: its text by digest, and the changes that led to it, in order.

State, evidence and box each hold such a copy, as JSON. Which one is in force says
`sweepstack.teardown.policy_in_force`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from pydantic import ConfigDict, Field, ValidationError

from sweepstack.core.records import Approval, Record
from sweepstack.core.schema import first
from sweepstack.onbox.common.canonical import DIGEST_PREFIX, canonical_json, digest_of


class PolicyText(Record):
    """The text of a `policy.yaml`, and that of the `allowed_signers` beside it. Both "": no policy, which allows
    all."""

    text: str = ""
    signers: str = ""

    @cached_property
    def digest(self) -> str:
        """The name that its content gives it."""
        return digest_of({"text": self.text, "signers": self.signers})

    @property
    def short(self) -> str:
        """The first digits of the digest, for people."""
        return self.digest.removeprefix(DIGEST_PREFIX)[:12]


NONE = PolicyText()
"""What a project without a policy.yaml has."""


class PolicyLink(Record):
    """One policy of a chain. `approval`: what let it follow a stricter one; None if it is the first, or as strict."""

    policy: PolicyText
    approval: Approval | None = None


class PolicyChain(Record):
    """The policies of one sweep, in the order in which they came into force. Each follows the one before it."""

    links: tuple[PolicyLink, ...] = Field(min_length=1)

    @property
    def head(self) -> PolicyText:
        """The newest one."""
        return self.links[-1].policy

    @property
    def root(self) -> str:
        """The digest of the first one: a chain with another root goes on from nothing in this one."""
        return self.links[0].policy.digest

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests, in order: what makes it the same chain as another."""
        return tuple(link.policy.digest for link in self.links)


class PolicyCopy(Record):
    """What one place holds. More than one chain only where two places disagreed: then all of their heads bind."""

    chains: tuple[PolicyChain, ...] = ()

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    @property
    def roots(self) -> frozenset[str]:
        """Where its chains begin."""
        return frozenset(chain.root for chain in self.chains)

    def within(self, other: PolicyCopy | None) -> PolicyCopy:
        """It without the chains that begin elsewhere than those of `other`; all of it where `other` has none."""
        if other is None or not other.chains:
            return self
        return PolicyCopy(chains=tuple(chain for chain in self.chains if chain.root in other.roots))

    def written(self) -> str:
        """It as one line of JSON, the same for the same content."""
        return canonical_json(self.model_dump(mode="json")).decode()


def read_copy(text: str | bytes) -> PolicyCopy:
    """The copy in a text. Raises ValueError, which says what is wrong."""
    try:
        return PolicyCopy.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(first(error)) from error


def united(copies: Iterable[PolicyCopy]) -> PolicyCopy:
    """All chains of these copies, without those that another one goes on from, in the order of the copies."""
    found: dict[tuple[str, ...], PolicyChain] = {}
    for copy in copies:
        for chain in copy.chains:
            found.setdefault(chain.digests, chain)
    kept = [
        chain
        for digests, chain in found.items()
        if not any(len(other) > len(digests) and other[: len(digests)] == digests for other in found)
    ]
    return PolicyCopy(chains=tuple(kept))
