"""What the API takes: the request bodies of the vendor's OpenAPI document 1.10.0, with its bounds and patterns.

The document forbids no further fields. Here they are refused and fail the test: an adapter has no business to send any.
`quantity` is in the document's own example of a launch and in older clients (default 1), but not among the fields of
1.10.0.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

USER_DATA_BYTES = 1_000_000
Name = Annotated[str, StringConstraints(max_length=64)]
KeyName = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class Body(BaseModel):
    """No other fields, no other types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Mount(Body):
    """`RequestedFilesystemMountEntry`."""

    mount_point: Annotated[
        str, StringConstraints(max_length=256, pattern=r"^(/home|/lambda/nfs|/data)[//a-zA-Z0-9-]*$")
    ]
    file_system_id: str


class Tag(Body):
    """`RequestedTagEntry`."""

    key: Annotated[str, StringConstraints(max_length=55, pattern=r"^[a-z][a-z0-9-:]+$")]
    value: Annotated[str, StringConstraints(max_length=128)]


class ImageId(Body):
    """`ImageSpecificationID`."""

    id: str


class ImageFamily(Body):
    """`ImageSpecificationFamily`."""

    family: str


class RulesetEntry(Body):
    """`FirewallRulesetEntry`."""

    id: str


class Launch(Body):
    """`InstanceLaunchRequest`."""

    region_name: str
    instance_type_name: str
    ssh_key_names: list[str] = Field(min_length=1, max_length=1)
    file_system_names: list[str] = Field(default_factory=list)
    file_system_mounts: list[Mount] = Field(default_factory=list)
    hostname: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][0-9a-z-]{0,62}$")] | None = None
    name: Name | None = None
    image: ImageId | ImageFamily | None = None
    user_data: str | None = None
    tags: list[Tag] = Field(default_factory=list)
    firewall_rulesets: list[RulesetEntry] = Field(default_factory=list)
    quantity: int = Field(default=1, ge=1)


class Ids(Body):
    """`InstanceTerminateRequest`, `InstanceRestartRequest`."""

    instance_ids: list[str]


class Rename(Body):
    """`InstanceModificationRequest`."""

    name: Name | None = None


class AddKey(Body):
    """`AddSSHKeyRequest`."""

    name: KeyName
    public_key: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None


class NewFileSystem(Body):
    """`FilesystemCreateRequest`."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=60, pattern=r"^[a-zA-Z]+[0-9a-zA-Z-]*$")]
    region: str


class Rule(Body):
    """`FirewallRule`."""

    protocol: Annotated[str, StringConstraints(pattern=r"^(tcp|udp|icmp|all)$")]
    source_network: str
    description: Annotated[str, StringConstraints(max_length=128)]
    port_range: list[Annotated[int, Field(ge=1, le=65535)]] | None = Field(default=None, min_length=2, max_length=2)


class NewRuleset(Body):
    """`FirewallRulesetCreateRequest`."""

    name: Name
    region: str
    rules: list[Rule]
