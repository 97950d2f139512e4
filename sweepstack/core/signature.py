"""The signature of one person under an approval, as it stands beside it in the stack file."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

PRINCIPAL = r"^[A-Za-z0-9_][A-Za-z0-9_.+@%-]{0,253}$"
Principal = Annotated[str, StringConstraints(pattern=PRINCIPAL)]
"""Who signed, as the first column of an allowed_signers file has it: usually an address, never a pattern."""


class SweepName(BaseModel):
    """Which sweep, or stack of volumes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    project: str
    """the project, as the engine calls it"""
    stack: str
    """the stack, as the engine calls it"""
    identity: str
    """the id in its evidence"""

    def __str__(self) -> str:
        return f"{self.project or '?'}/{self.stack or '?'} ({self.identity})"


class Signature(BaseModel):
    """One signature under an approval (what is signed: `sweepstack.teardown.signatures.signed_document`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    principal: Principal
    """who signed, as the first column of an allowed_signers file has it"""
    sweep: SweepName
    """what it was given for, which is part of what was signed"""
    signature: str = Field(max_length=16384)
    """the armored SSHSIG that `ssh-keygen -Y sign` wrote"""
