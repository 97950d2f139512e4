"""Bodies of requests, as the vendor's OpenAPI document has them. No other fields, no other types."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(min_length=1)]
IpType = Literal["static", "dynamic", "none"]
Frequency = Literal["hourly", "daily", "weekly", "monthly"]


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
    networkId: str | None = None
    publicIpType: IpType | None = None
    autoSnapshotEnabled: bool | None = None
    autoSnapshotFrequency: Frequency | None = None
    autoSnapshotSaveCount: int | None = None
    autoShutdownEnabled: bool | None = None
    autoShutdownTimeout: int | None = None
    autoShutdownForce: bool | None = None
    takeInitialSnapshot: bool = False
    restorePointEnabled: bool = False
    restorePointFrequency: Literal["shutdown"] | None = None
    startupScriptId: str | None = None
    emailPassword: bool = True
    startOnCreate: bool = True
    enableNvlink: bool = False
    accessorIds: list[str] = Field(default_factory=list)


class ChangedMachine(Body):
    """`machines-update`."""

    name: Name | None = None
    machineType: str | None = None
    diskSize: int | None = None
    networkId: str | None = None
    publicIpType: IpType | None = None
    autoSnapshotEnabled: bool | None = None
    autoSnapshotFrequency: Frequency | None = None
    autoSnapshotSaveCount: int | None = None
    autoShutdownEnabled: bool | None = None
    autoShutdownTimeout: int | None = None
    autoShutdownForce: bool | None = None
    restorePointEnabled: bool | None = None
    restorePointFrequency: Literal["shutdown"] | None = None
    restorePointSnapshotId: str | None = None


class NoFields(Body):
    """Of a call whose path says all; some customers send the id again."""

    id: str | None = None


class NewSnapshot(Body):
    """`snapshots-create`."""

    machineId: str
    name: Name


class Rename(Body):
    """`snapshots-update`, `sharedDrives-update`, `privateNetworks-update`."""

    name: Name


class NewDrive(Body):
    """`sharedDrives-create`; `size` in GB."""

    name: Name
    networkId: str
    region: str
    size: int


class NewNetwork(Body):
    """`privateNetworks-create`."""

    name: Name
    region: str
    migrateMachines: bool = False


class ClaimIp(Body):
    """`publicIps-claim`."""

    region: str


class AssignIp(Body):
    """`publicIps-assign`; None takes it off its machine."""

    machineId: str | None


class NewScript(Body):
    """`startupScripts-create`."""

    name: Name
    script: str
    isRunOnce: bool = False


class ChangedScript(Body):
    """`startupScripts-update`."""

    name: Name | None = None
    script: str | None = None
    isRunOnce: bool | None = None
    isEnabled: bool | None = None


class OnMachine(Body):
    """`startupScripts-assign`, `startupScripts-unassign`."""

    machineId: str
