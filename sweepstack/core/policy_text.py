"""A project's policy as the engine's state carries it: its text, by digest.

Which one binds a sweep says `sweepstack.teardown.policy_in_force`."""

from __future__ import annotations

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
    """One policy of a chain. `approval`: what let it follow a stricter one."""

    policy: PolicyText
    approval: Approval | None = None


class PolicyChain(Record):
    """The policy of an entry of the state, the last link. Versions before 0.1 kept those before it, too; now there is
    one."""

    links: tuple[PolicyLink, ...] = Field(min_length=1)

    @property
    def policy(self) -> PolicyText:
        """The one that binds."""
        return self.links[-1].policy

    def asks_under(self, file: PolicyText) -> PolicyText:
        """The policy whose people are asked before a weaker one may follow. In a chain of several, it is the last that
        a person can have said: one that was approved, or that the project's file says; else the first. A later link may
        have come into the state from a copy that a job wrote, and would ask for the consent of its writer."""
        said = (link.policy for link in reversed(self.links) if link.approval is not None or link.policy == file)
        return next(said, self.links[0].policy)


class PolicyCopy(Record):
    """The property `policy` of an entry of the state. Only versions before 0.1 wrote more than one chain."""

    chains: tuple[PolicyChain, ...] = ()

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


def written(policy: PolicyText) -> str:
    """The policy as an entry of the state has it: one line of JSON, the same for the same policy."""
    copy = PolicyCopy(chains=(PolicyChain(links=(PolicyLink(policy=policy),)),))
    return canonical_json(copy.model_dump(mode="json")).decode()


def read_copy(text: str) -> PolicyCopy:
    """The property of an entry. Raises ValueError, which says what is wrong."""
    try:
        return PolicyCopy.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(first(error)) from error
