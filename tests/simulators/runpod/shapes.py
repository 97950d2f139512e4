"""The bodies that REST v2 takes, with closed keys: what is not here is refused, and fails the test, also where the
vendor has it and no customer here sends it."""

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
    image: str
    gpu: Gpu
    cloud: Literal["SECURE", "COMMUNITY"] = "SECURE"
    dataCenterIds: list[str] = []
    disk: int | None = Field(default=None, ge=1)
    mounts: Mounts = Mounts()
    ports: list[Port] = []
    env: dict[str, str] = {}
    args: str = ""


class Action(Closed):
    action: Literal["start", "stop"]


class CreateVolume(Closed):
    name: Name
    size: int = Field(ge=10, le=4096)
    dataCenter: str
    type: Literal["STANDARD", "HIGH_PERFORMANCE"] | None = None


class PatchVolume(Closed):
    name: Name | None = None
    size: int | None = Field(default=None, ge=10, le=4096)
