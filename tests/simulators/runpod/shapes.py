"""The bodies that REST v2 takes, with closed keys: what is not here is refused, and fails the test."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Closed(BaseModel):
    """No other keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _port(text: str) -> str:
    if not re.fullmatch(r"\d{1,5}/(tcp|http)", text):
        raise ValueError("value must look like 22/tcp or 8888/http")
    return text


Name = Annotated[str, Field(min_length=1, max_length=191)]
Port = Annotated[str, AfterValidator(_port)]


class Gpu(Closed):
    id: str
    count: int | None = Field(default=None, ge=1)
    allowedCudaVersions: list[str] = []
    minCudaVersion: str | None = None
    minRamPerGpu: int | None = None
    minVcpuCountPerGpu: int | None = None


class Cpu(Closed):
    id: str
    vcpuCount: int = Field(ge=2)


class Persistent(Closed):
    size: int = Field(ge=10)
    path: str = Field(min_length=1)


class Network(Closed):
    volumeId: str
    path: str = Field(min_length=1)


class Mounts(Closed):
    persistent: Persistent | None = None
    network: list[Network] | None = Field(default=None, max_length=1)


class CreatePod(Closed):
    name: Name
    image: str | None = None
    gpu: Gpu | None = None
    cpu: Cpu | None = None
    cloud: Literal["SECURE", "COMMUNITY"] = "SECURE"
    dataCenterIds: list[str] = []
    disk: int | None = Field(default=None, ge=1)
    mounts: Mounts = Mounts()
    ports: list[Port] = []
    env: dict[str, str] = {}
    args: str = ""
    registry: str | None = None
    templateId: str | None = None
    startSsh: bool = False
    startJupyter: bool = False
    globalNetworking: bool = False
    locked: bool = False


class PatchPersistent(Closed):
    size: int | None = Field(default=None, ge=10)
    path: str | None = None


class PatchMounts(Closed):
    persistent: PatchPersistent | None = None
    network: list[Network] | None = None


class PatchPod(Closed):
    name: Name | None = None
    image: str | None = None
    args: str | None = None
    disk: int | None = Field(default=None, ge=1)
    ports: list[Port] | None = None
    env: dict[str, str] | None = None
    registry: str | None = None
    mounts: PatchMounts | None = None
    locked: bool | None = None
    globalNetworking: bool | None = None
    templateId: str | None = None


class Action(Closed):
    action: Literal["start", "stop", "restart", "terminate"]


class CreateVolume(Closed):
    name: Name
    size: int = Field(ge=10, le=4096)
    dataCenter: str
    type: Literal["STANDARD", "HIGH_PERFORMANCE"] | None = None


class PatchVolume(Closed):
    name: Name | None = None
    size: int | None = Field(default=None, ge=10, le=4096)


class SshKeys(Closed):
    keys: list[Annotated[str, Field(pattern=r"^(ssh|ecdsa|sk)-\S+ \S+( .*)?$")]]


class CreateRegistry(Closed):
    name: Name
    username: str
    password: str


class TagResource(Closed):
    resourceType: Literal["POD", "CLUSTER", "SERVERLESS_ENDPOINT", "NETWORK_VOLUME"]
    resourceId: str


class CreateTag(Closed):
    key: Name
    value: str = Field(default="", max_length=191)
    resources: list[TagResource] = Field(default=[], max_length=100)
