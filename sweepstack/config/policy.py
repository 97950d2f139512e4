"""The project's `policy.yaml`: what every sweep of it has to keep to. See docs/policy.md.

It is read like a stack file: all mistakes at once, each with line, key and fix; an unknown key is refused.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationError

from sweepstack.config.file import Document, parse_document
from sweepstack.config.model import at_least_one
from sweepstack.config.problems import Mistake, from_validation, refuse
from sweepstack.config.project import POLICY, SIGNERS, misnamed_policies
from sweepstack.config.types import Count, DurationText, Names, PlatformName, Price, Shape, Text, wrong
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.paths import docs_page
from sweepstack.core.policy_text import PolicyText
from sweepstack.core.signature import PRINCIPAL
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.units import parse_duration

FILE = POLICY
EvidenceKind = Literal["folder", "s3"]
"""Where evidence may be kept: in a folder, or in object storage."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Platforms = Annotated[
    tuple[PlatformName, ...], BeforeValidator(_listed), AfterValidator(at_least_one("platform, such as [local]"))
]
Regions = Annotated[Names, AfterValidator(at_least_one("region, such as [EU-RO-1]"))]
Kinds = Annotated[tuple[EvidenceKind, ...], BeforeValidator(_listed), AfterValidator(at_least_one("kind: folder, s3"))]


def _name(value: str) -> str:
    if not re.fullmatch(PRINCIPAL, value):
        raise wrong("a name as it stands in allowed_signers, such as ana@example.org")
    return value


People = Annotated[
    tuple[Annotated[Text, AfterValidator(_name)], ...],
    BeforeValidator(_listed),
    AfterValidator(at_least_one("person, such as [ana@example.org]")),
]


class Policy(Shape):
    """`policy.yaml`. A key that is left out allows all."""

    anchor: ClassVar[str] = "keys"
    page: ClassVar[str] = docs_page("policy.md")
    file: ClassVar[str] = FILE
    approvers: People | None = None
    """the people who may approve an end or a stop, as the file `allowed_signers` names them: an approval then needs the
    signature of one of them"""
    abandoners: People | None = None
    """the people who may give a box up, or let a weaker policy follow; by default `approvers`"""
    abandon_needs: Count = 1
    """how many of them have to sign that, such as 2; one key under two names is one person"""
    max_price_per_hour: Price | None = None
    """USD per hour: no box that may cost more is rented"""
    platforms: Platforms | None = None
    """the platforms on which boxes and volumes may be rented"""
    regions: Regions | None = None
    """the regions in which they may be rented; `resources.region` of a stack file has to name one of them"""
    budget: Literal["required"] | None = None
    """`required`: nothing is rented without a `budget` in the stack file"""
    evidence: Kinds | None = None
    """the kinds of places where evidence may be kept: `folder`, `s3`"""
    waivers: Literal["allowed", "refused"] = "allowed"
    """`refused`: no approval may waive a cell, or files that belong to no cell; giving a whole box up is not a
    waiver"""
    max_expiry: DurationText | None = None
    """the longest time for which an approval may hold, such as `24h`"""

    @property
    def may_abandon(self) -> tuple[str, ...] | None:
        """Who may give a box up; None: any person."""
        return self.approvers if self.abandoners is None else self.abandoners

    @property
    def max_expiry_seconds(self) -> float | None:
        """`max_expiry` in seconds."""
        return None if self.max_expiry is None else parse_duration(self.max_expiry)


@dataclass(frozen=True)
class ReadPolicy:
    """A policy that was read, with the text that it was read from."""

    source: PolicyText
    rules: Policy
    _document: Document
    _shown: str

    def at(self, key: str) -> str:
        """Where a key stands, for messages: `policy.yaml line 3`."""
        return f"{self._shown} line {self._document.line((key,))}"


def parse_policy(source: PolicyText, shown: str = FILE) -> ReadPolicy:
    """The policy in a text. Raises ConfigError with all mistakes; `shown` is what messages call the text."""
    document = parse_document(source.text, shown)
    mistakes = [Mistake(flaw.line, ".".join(map(str, flaw.loc)), flaw.text, Policy) for flaw in document.flaws]
    rules = None
    try:
        rules = Policy.model_validate(document.data)
    except ValidationError as error:
        mistakes += from_validation(error, document, (), Policy)
    mistakes += [
        Mistake(
            document.line((key,)), key, "no value, and without one it allows all: give it one, or take it out", Policy
        )
        for key, value in document.data.items()
        if value is None and key in Policy.model_fields
    ]
    if rules is not None:
        mistakes += _people_mistakes(rules, source.signers, document)
    if mistakes or rules is None:
        raise refuse(mistakes, document)
    return ReadPolicy(source, rules, document, shown)


def of_project(root: Path) -> PolicyText | None:
    """The text of the project's policy; None if it has no such file. Raises ConfigError if it can't be read, or if it
    has another name: a policy that is silently not read would let all through."""
    path = root / FILE
    for other in misnamed_policies(root):
        raise ConfigError(f"{other} is not read: the policy's name is {FILE}. Next: {mended(root)}, or take it out")
    if not os.path.lexists(path):
        return None
    text = read_text(path, FILE)
    if not {"approvers", "abandoners"} & parse_document(text, FILE).data.keys():
        return PolicyText(text=text)
    beside = root / SIGNERS
    return PolicyText(text=text, signers=read_text(beside, SIGNERS) if beside.exists() else "")


def mended(root: Path) -> str:
    """What to do with a policy that can't be read."""
    return next((f"mv {other} {FILE}" for other in misnamed_policies(root)), f"mend {FILE}")


def signer_lines(signers: str) -> tuple[tuple[str, str], ...]:
    """The names and the key of each line of a list of allowed signers: `("ana@lab,ana", "ssh-ed25519 AAAA")`."""
    found = []
    for line in signers.splitlines():
        words = line.split()
        at = next((i for i, word in enumerate(words) if i and word.startswith(("ssh-", "ecdsa-", "sk-"))), 0)
        if at and at + 1 < len(words) and not line.lstrip().startswith("#"):
            found.append((words[0].strip('"'), " ".join(words[at : at + 2])))
    return tuple(found)


def _keys_of(name: str, signers: str) -> set[str]:
    """The keys that the list has for this name."""
    lines = signer_lines(signers)
    return {key for names, key in lines if any(fnmatchcase(name, pattern) for pattern in names.split(","))}


def _people_mistakes(rules: Policy, signers: str, document: Document) -> list[Mistake]:
    """Why the people whom the policy asks for can't sign."""
    found = []
    for key in ("approvers", "abandoners"):
        for name in getattr(rules, key) or ():
            if not _keys_of(name, signers):
                fix = f"{SIGNERS}, beside {FILE}, has no key for this name"
                found.append(Mistake(document.line((key,)), f"{key}: {name}", fix, Policy))
    if rules.abandon_needs > 1 and not found:
        people: list[set[str]] = []
        for name in rules.may_abandon or ():
            keys = _keys_of(name, signers)
            if all(not keys & others for others in people):
                people.append(keys)
        if len(people) < rules.abandon_needs:
            fix = f"abandoners, or approvers, have to name so many people with a key each ({len(people)} do)"
            key = f"abandon_needs: {rules.abandon_needs}"
            found.append(Mistake(document.line(("abandon_needs",)), key, fix, Policy))
    return found
