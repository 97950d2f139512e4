"""Who is told what happens to a sweep: the `events` of a stack config."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from sweepstack.config.types import EnvName, Shape, hidden, wrong

Kind = Literal[
    "failed",
    "held",
    "hung",
    "drained",
    "preempted",
    "gone",
    "lease",
    "clock",
    "budget",
    "balance",
    "verified",
    "approval",
    "policy",
    "audit",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_OWN_MACHINE = frozenset(("127.0.0.1", "::1", "localhost"))
_TOPIC = re.compile(r"/[^/?#\s]+(/[^/?#\s]+)*")
_ACCESS_TOKEN = re.compile(r"tk_[a-z0-9]{20,}", re.IGNORECASE)


def is_topic(url: str) -> bool:
    """Whether `url` is the web address of a topic, without a user, a password or a query in it."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return plain and "@" not in parts.netloc and not parts.query and bool(_TOPIC.fullmatch(parts.path))


def is_private(url: str) -> bool:
    """Whether no one on the way can read what is sent there: by TLS, or since it stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _OWN_MACHINE


def _topic(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return value
    if not isinstance(value, str) or not is_topic(value):
        raise hidden(
            "a topic's address without a user or a query, such as https://ntfy.example/my-sweeps, or the name of an "
            "environment variable that holds it"
        )
    return value


def _no_token(value: str) -> str:
    if _ACCESS_TOKEN.fullmatch(value):
        raise hidden("the name of an environment variable, such as NTFY_TOKEN; its value is a secret")
    return value


class EventsConfig(Shape):
    """Who is told what happens to the sweep, and of what."""

    anchor: ClassVar[str] = "events"
    webhook: EnvName | None = None
    """the *name* of the environment variable with the webhook's URL; the URL is a secret and stands in no file"""
    ntfy: Annotated[str, BeforeValidator(_topic)] | None = None
    """the topic to post to, as [ntfy](https://ntfy.sh) has them: `https://ntfy.example/my-sweeps`. Where the name of
    the topic is what keeps others out, write the *name* of the environment variable that holds the address"""
    token: Annotated[EnvName, AfterValidator(_no_token)] | None = None
    """the *name* of the environment variable with the access token for `ntfy`, where it asks for one. It is sent by
    https only"""
    kinds: tuple[Kind, ...] = KINDS
    """of what to tell, by default all: `failed`, `held`, `hung`, `drained`, `preempted`, `gone`, `lease`, `clock`,
    `budget`, `balance`, `verified`, `approval`, `policy`, `audit`: [events.md](events.md)"""


def tells(value: EventsConfig | None) -> EventsConfig | None:
    """`value`, if it says whom to tell; else raises with what is missing."""
    if value is not None and value.webhook is None and value.ntfy is None:
        raise wrong("webhook, ntfy, or both, such as {webhook: SWEEP_WEBHOOK}")
    if value is not None and value.token is not None and value.ntfy is None:
        raise wrong("ntfy beside token: the token is for its server")
    return value
