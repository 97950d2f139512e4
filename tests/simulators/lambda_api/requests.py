"""What the API takes: the request bodies of the vendor's OpenAPI document 1.10.0, with its bounds and patterns.

The document forbids no further fields. Here they are refused and fail the test: an adapter has no business to send any.
So are those of the document that no customer here sends: file systems, images, firewall rulesets, a host name.
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


class Tag(Body):
    """`RequestedTagEntry`."""

    key: Annotated[str, StringConstraints(max_length=55, pattern=r"^[a-z][a-z0-9-:]+$")]
    value: Annotated[str, StringConstraints(max_length=128)]


class Launch(Body):
    """`InstanceLaunchRequest`."""

    region_name: str
    instance_type_name: str
    ssh_key_names: list[str] = Field(min_length=1, max_length=1)
    name: Name | None = None
    user_data: str | None = None
    tags: list[Tag] = Field(default_factory=list)


class Ids(Body):
    """`InstanceTerminateRequest`."""

    instance_ids: list[str]


class AddKey(Body):
    """`AddSSHKeyRequest`."""

    name: KeyName
    public_key: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
