"""The project's `policy.yaml`: what every sweep of it has to keep to. See docs/policy.md.

It is read like a stack file: all mistakes at once, each with line, key and fix; an unknown key is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationError

from sweepstack.config.file import Document, parse_document
from sweepstack.config.model import at_least_one
from sweepstack.config.problems import Mistake, from_validation, refuse
from sweepstack.config.types import DurationText, Names, PlatformName, Price, Shape
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.policy_chain import PolicyText
from sweepstack.onbox.common.units import parse_duration

FILE = "policy.yaml"
EvidenceKind = Literal["folder", "s3"]
"""Where evidence may be kept: in a folder, or in object storage."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Platforms = Annotated[
    tuple[PlatformName, ...], BeforeValidator(_listed), AfterValidator(at_least_one("platform, such as [local]"))
]
Regions = Annotated[Names, AfterValidator(at_least_one("region, such as [EU-RO-1]"))]
Kinds = Annotated[tuple[EvidenceKind, ...], BeforeValidator(_listed), AfterValidator(at_least_one("kind: folder, s3"))]


class Policy(Shape):
    """`policy.yaml`. A key that is left out allows all."""

    anchor: ClassVar[str] = "keys"
    page: ClassVar[str] = "docs/policy.md"
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
    def max_expiry_seconds(self) -> float | None:
        """`max_expiry` in seconds."""
        return None if self.max_expiry is None else parse_duration(self.max_expiry)


@dataclass(frozen=True)
class ReadPolicy:
    """A policy that was read, with the text that it was read from."""

    source: PolicyText
    rules: Policy
    _document: Document

    def at(self, key: str) -> str:
        """Where a key stands, for messages: `policy.yaml line 3`."""
        return f"{FILE} line {self._document.line((key,))}"


def read(source: PolicyText, shown: str = FILE) -> ReadPolicy:
    """The policy in a text. Raises ConfigError with all mistakes; `shown` is the file's name in them."""
    document = parse_document(source.text, shown)
    mistakes = [Mistake(flaw.line, ".".join(map(str, flaw.loc)), flaw.text, Policy) for flaw in document.flaws]
    rules = None
    try:
        rules = Policy.model_validate(document.data)
    except ValidationError as error:
        mistakes += from_validation(error, document, (), Policy)
    if mistakes or rules is None:
        raise refuse(mistakes, document)
    return ReadPolicy(source, rules, document)


def of_project(root: Path) -> PolicyText | None:
    """The text of the project's policy; None if it has no such file. Raises ConfigError if it can't be read."""
    path = root / FILE
    if not path.exists() and not path.is_symlink():
        return None
    return PolicyText(text=read_text(path, FILE))
