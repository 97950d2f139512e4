"""The types of the values of a stack config, each with its message for a wrong value."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from sweepstack.channel.host_address import HostAddress
from sweepstack.config.secrets import quotable
from sweepstack.core.bucket_address import SCHEME, S3Address
from sweepstack.core.records import BOX_NAME, BoxName
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.onbox.common.groups import is_group
from sweepstack.onbox.common.nodes import PEER
from sweepstack.onbox.common.units import parse_duration, parse_size

_PLATFORM = re.compile(r"[a-z][a-z0-9_-]*")
_SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "sbin", "sys", "usr", "var", "sweepstack")
)
_LONGEST_NAME = 255
_RESERVED_FILES = frozenset({"log.txt", "manifest.json"})


class Shape(BaseModel):
    """An object of the stack config: closed, frozen. `anchor` is its heading in docs/stack-config.md."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)
    anchor: ClassVar[str]


def wrong(expected: str) -> PydanticCustomError:
    """The error for a value of the wrong kind; `expected` completes "expected …"."""
    return PydanticCustomError("expected", "{text}", {"text": f"expected {expected}"})


def _read(value: Any, kind: type[int] | type[float] = float) -> int | float:
    """A number, also as text. Raises ValueError, also for digits of another script, which `float` takes."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not str(value).isascii():
        raise ValueError
    return kind(value)


def _number(expected: str, *, whole: bool = False, zero: bool = False) -> BeforeValidator:
    def read(value: Any) -> Any:
        try:
            number = _read(value, int if whole and not isinstance(value, float) else float)
        except ValueError:
            raise wrong(expected) from None
        too_small = number < 0 or (number == 0 and not zero)
        if too_small or not number < 1e15 or (whole and isinstance(number, float)):
            raise wrong(expected)
        return number

    return BeforeValidator(read)


LEAST_LEASE_SECONDS = 600.0


def _text(expected: str, reads: Callable[[str], str]) -> BeforeValidator:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise wrong(expected)
        try:
            return reads(value)
        except ValueError:
            raise wrong(expected) from None

    return BeforeValidator(read)


def _nonempty(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise ValueError
    return value


def _size(value: str) -> str:
    size = parse_size(value)
    if size.at_least or not size.bytes:
        raise ValueError
    return size.text


def _bound(value: str) -> str:
    size = parse_size(value)
    if not size.bytes:
        raise ValueError
    return size.text


def _duration(value: str) -> str:
    parse_duration(value)
    return value.strip()


def _lease(value: str) -> str:
    text = value.strip()
    if text != "none" and parse_duration(text) < LEAST_LEASE_SECONDS:
        raise ValueError
    return text


def _cuda(value: str) -> str:
    if not re.fullmatch(r"[0-9]+\.[0-9]+\+?", value):
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong("true or false")
    return value


def _env_value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise wrong("text; quote it")
    return str(value)


def relative_file(path: str) -> str:
    """`path`, if it names one file below a cell's folder; else raises with the reason."""
    parts = path.split("/")
    if path.startswith(("/", "~")) or "\\" in path or ".." in parts:
        raise wrong("a path below the cell's {out}, without .. and not absolute")
    if not path or "" in parts or "." in parts or not path.isprintable():
        raise wrong("a plain relative path, such as checkpoints/best.pt")
    if any(character in path for character in "*?"):
        raise wrong("the name of one file; patterns are for artifacts")
    if any(len(part.encode(errors="surrogateescape")) > _LONGEST_NAME for part in parts):
        raise wrong(f"names of at most {_LONGEST_NAME} bytes between the slashes: no file system takes longer ones")
    if path in _RESERVED_FILES:
        raise wrong(f"another name: {path} is written by sweepstack")
    return path


def artifact_path(path: str) -> str:
    """`path`, if it names a file, a folder or a pattern of these below a cell's folder; else raises with the reason."""
    if not is_group(path):
        return relative_file(path)
    if "**" in path or "[" in path:
        raise wrong(
            "a pattern of * and ?, each within one part of the path; a folder, such as model/, means all below it"
        )
    relative_file(re.sub(r"[*?]", "x", path.removesuffix("/")))
    return path


def curve_file(path: str) -> str:
    """`path`, if it names one file of each cell, or is a pattern for it; else raises with the reason."""
    if path.endswith("/"):
        raise wrong("the name of a file, or a pattern for it, such as runs/*/events.out.tfevents.*")
    return artifact_path(path)


def _box_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(BOX_NAME, name):
        raise wrong("a box's name: lower-case letters, digits and inner dashes, 40 at most")
    return name


def _platform(name: Any) -> str:
    if not isinstance(name, str) or not _PLATFORM.fullmatch(name):
        raise wrong("a platform's name, such as local")
    return name


def hidden(expected: str) -> PydanticCustomError:
    """Like `wrong`, for a value that must not be shown: it may be a secret."""
    return PydanticCustomError("hidden", "{text}", {"text": f"expected {expected}"})


def _env_name(value: Any) -> str:
    """The name of an environment variable. A wrong value is not shown: it may be a URL or a key."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise hidden("the name of an environment variable; its value is a secret and stands in no file")
    return value


def _fraction(value: Any) -> float:
    expected = "a part of the budget: 0.8 for 80 %, at most 2"
    try:
        number = _read(value)
    except ValueError:
        raise wrong(expected) from None
    if not 0 < number <= 2:
        raise wrong(expected)
    return number


def _share(value: Any) -> float:
    expected = "a part between 0 and 1, such as 0.98"
    try:
        number = _read(value)
    except ValueError:
        raise wrong(expected) from None
    if not 0 < number < 1:
        raise wrong(expected)
    return number


def _mount_path(path: Any) -> str:
    if not isinstance(path, str) or not re.fullmatch(r"(/[A-Za-z0-9][A-Za-z0-9._-]*){1,4}", path):
        raise wrong("an absolute path of plain names, such as /ckpt")
    if path.split("/")[1] in _SYSTEM:
        raise wrong(f"another path: /{path.split('/')[1]} is the system's")
    return path


def _volume_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,33}[a-z0-9])?", name):
        # A platform allows 64 characters for the name of a volume, and our tag takes 29 of them.
        raise wrong("a volume's name: lower-case letters, digits and inner dashes, 35 at most")
    return name


def _source(value: Any) -> str:
    if isinstance(value, str) and "://" not in value and re.search(r"^[.~]|[/\\]", value):
        raise wrong(
            "the name of a volume, or s3://bucket/prefix; a folder of this machine can't be mounted: "
            "small files ship with job.include, large ones from a bucket"
        )
    if not isinstance(value, str) or "://" not in value:
        return _volume_name(value)
    try:
        return S3Address.parse(value, quotable(value)).uri
    except EvidenceError as error:
        raise wrong(f"the name of a volume, or s3://bucket/prefix; {error}") from None


def _server(text: str) -> str:
    found = urlsplit(text)
    named = found.scheme in ("http", "https") and found.hostname and found.port != 0  # a port above 65535 raises
    if not named or "@" in found.netloc or found.query or found.fragment:
        raise ValueError
    return text.rstrip("/")


def _aim(text: str) -> str:
    if not text.startswith(("/", "~/")):
        _server(text.replace("aim:", "http:", 1) if text.startswith("aim://") else "")
    return text


def one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _finite_rule(value: Any) -> Any:
    if value in ("require", "report"):
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(part, str) and part for part in value):
        raise wrong("require, report, or a list of parts of names, such as [state_dict]")
    return tuple(value)


_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})([T ]00:00:00(\.0+)?( ?(Z|UTC|[+]00:?00( UTC)?))?)?")


def _day(value: Any) -> date:
    """A day; also in the form that the engine saves it in (`2027-01-31 00:00:00 +0000 UTC`)."""
    match = _DAY.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        return date.fromisoformat(match[1] if match else "")
    except ValueError:
        raise wrong("a day, such as 2027-01-31") from None


Text = Annotated[str, _text("text", _nonempty)]
Price = Annotated[float, _number("USD per hour, such as 2.10")]
PriceOrZero = Annotated[float, _number("USD per hour, such as 0.12", zero=True)]
Count = Annotated[int, _number("a whole number from 1 on", whole=True)]
CountOrZero = Annotated[int, _number("a whole number from 0 on", whole=True, zero=True)]
Cores = Annotated[float, _number("a number of cores, such as 4")]
SizeText = Annotated[str, _text("a size with its unit, such as 50MB, and more than 0", _size)]
BoundText = Annotated[str, _text("a size with its unit, such as 40GB, or 40GB+ for at least, and more than 0", _bound)]
DurationText = Annotated[str, _text("a duration with its unit, such as 10m", _duration)]
LeaseText = Annotated[str, _text("a duration of 10m or more, such as 2h, or none", _lease)]
CudaText = Annotated[str, _text('a CUDA version in quotes, such as "12.4"', _cuda)]
FilePath = Annotated[str, AfterValidator(relative_file)]
ArtifactPath = Annotated[str, AfterValidator(artifact_path)]
CurvePath = Annotated[str, AfterValidator(curve_file)]
Names = Annotated[tuple[Text, ...], BeforeValidator(one_or_more)]
FiniteRule = Annotated[Literal["require", "report"] | tuple[str, ...], BeforeValidator(_finite_rule)]
Flag = Annotated[bool, BeforeValidator(_flag)]
EnvValue = Annotated[str, BeforeValidator(_env_value)]
Usd = Annotated[float, _number("USD in all, such as 60")]
Hours = Annotated[float, _number("hours, such as 30")]
Fraction = Annotated[float, BeforeValidator(_fraction)]
Share = Annotated[float, BeforeValidator(_share)]
MountPath = Annotated[str, BeforeValidator(_mount_path)]
Source = Annotated[str, BeforeValidator(_source)]
Endpoint = Annotated[str, _text("the URL of an S3 server, without keys, such as https://minio.lab:9000", _server)]
Server = Annotated[Text, _text("the address of a server without user or key, such as https://tracker.lab.org", _server)]
AimRepository = Annotated[
    Text, _text("a server of Aim without key, such as aim://aim.lab.org:53800, or a folder, such as ~/aim", _aim)
]
VolumeName = Annotated[str, BeforeValidator(_volume_name)]
Day = Annotated[date, BeforeValidator(_day)]
EnvName = Annotated[str, BeforeValidator(_env_name)]
EnvNames = Annotated[tuple[Text, ...], BeforeValidator(one_or_more)]
"""Names of environment variables; config/checks.py checks them."""


def _host(text: str) -> str:
    try:
        return str(HostAddress.parse(text))
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _peer(text: str) -> str:
    if PEER.fullmatch(text) is None:
        raise ValueError
    return text


def _host_path(text: str) -> str:
    if not text or not re.fullmatch(r"~?(/[^/\s\0:]+)*/?", text) or ".." in text.split("/"):
        raise ValueError
    return text.rstrip("/") or text


def _folder(text: str) -> str:
    if text.startswith(SCHEME):
        try:
            return S3Address.parse(text).uri
        except EvidenceError as error:
            raise ValueError from error
    if not re.fullmatch(r"~?(/[^/\0\n]+)+/?", text) or ".." in text.split("/"):
        raise ValueError
    return text.rstrip("/")


def _host_program(text: str) -> str:
    if not re.fullmatch(r"(/[^/\s\0:]+)+", text) or ".." in text.split("/"):
        raise ValueError
    return text


def _cluster_word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*(,[A-Za-z0-9][A-Za-z0-9_.+-]*)*", text):
        raise ValueError
    return text


def _cluster_words(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9(\[][A-Za-z0-9_.+:,|&*()\[\]-]*", text):
        raise ValueError
    return text


ClusterWord = Annotated[str, _text("a name as the cluster has it, such as gpu", _cluster_word)]
ClusterWords = Annotated[
    str, _text("words as the scheduler takes them, such as nvme:1, without blanks", _cluster_words)
]
HostPath = Annotated[str, _text("a folder of the host, such as /data or ~/keep", _host_path)]
HostProgram = Annotated[str, _text("the whole path of a host's program, such as /opt/conda/bin/python", _host_program)]
ReturnsFolder = Annotated[str, _text("a folder such as ~/Drive/sweeps, or s3://bucket/prefix", _folder)]
HostText = Annotated[str, _text("a host such as root@192.0.2.7:22, or root@192.0.2.7:22/folder", _host)]
PeerText = Annotated[str, _text("a machine as the box's host enters it, such as ann@node-2 or ann@node-2:2222", _peer)]
BoxKey = Annotated[BoxName, BeforeValidator(_box_name)]
PlatformName = Annotated[str, BeforeValidator(_platform)]
