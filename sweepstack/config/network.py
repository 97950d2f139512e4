"""The keys of a stack config for a platform's network: proxy, mirrors and caches."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from sweepstack.config.types import EnvName, EnvValue, Shape, Text, wrong

__all__ = ["NetworkOverride", "Route"]

Route = Literal["huggingface", "modelscope", "pip", "conda", "apt"]
"""The services that a mirror replaces: each is set alone."""


def _line_or_flag(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and value.strip() and "\0" not in value):
        return value
    raise wrong("true, false, or a shell line such as `export https_proxy=http://10.0.0.1:3128`")


def _off_or_variables(value: Any) -> Any:
    if value is False or (isinstance(value, dict) and value):
        return value
    raise wrong('false, or variables, such as {PIP_INDEX_URL: "https://mirror/simple"}')


def _off_or_path(value: Any) -> Any:
    if value is False or (isinstance(value, str) and value.startswith(("/", "~/"))):
        return value
    raise wrong("false, or a path such as /data/hf or ~/hf")


class NetworkOverride(Shape):
    """Proxy, mirrors and caches of one platform, instead of those in its profile."""

    anchor: ClassVar[str] = "network"
    proxy: Annotated[bool | Text | None, BeforeValidator(_line_or_flag)] = None
    """`false`: the platform's proxy is not used; `true`: every set-up and every cell uses it, even if the profile uses
    it for single calls only; a shell line: used instead of the platform's"""
    mirrors: dict[Route, Annotated[Literal[False] | dict[EnvName, EnvValue], BeforeValidator(_off_or_variables)]] = (
        Field(default_factory=dict)
    )
    """route (`huggingface`, `modelscope`, `pip`, `conda`, `apt`) → `false`, or the variables that point to another
    mirror: `{pip: {PIP_INDEX_URL: "https://mirror/simple"}, huggingface: false}`"""
    caches: dict[EnvName, Annotated[Literal[False] | Text, BeforeValidator(_off_or_path)]] = Field(default_factory=dict)
    """variable → the folder for downloads on the box, or `false`: `{HF_HOME: /data/hf}`"""
