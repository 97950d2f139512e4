"""Bodies of requests: of the fields of the vendor's OpenAPI document those that a customer here sends. Any other field
fails the test: what it does there, it would not do here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(min_length=1)]


class Body(BaseModel):
    """See the module."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewMachine(Body):
    """`machines-create`. `startOnCreate` has no default in the document: one that is left out starts, and bills."""

    name: Name
    machineType: str
    templateId: str
    diskSize: int
    region: str
    publicIpType: Literal["dynamic", "none"] | None = None
    autoSnapshotEnabled: Literal[False] | None = None
    autoShutdownEnabled: Literal[False] | None = None
    takeInitialSnapshot: Literal[False] = False
    startupScriptId: str | None = None
    emailPassword: bool = True
    startOnCreate: bool = True


class NoFields(Body):
    """Of a call whose path says all; some customers send the id again."""

    id: str | None = None


class NewScript(Body):
    """`startupScripts-create`."""

    name: Name
    script: str
    isRunOnce: bool = False
