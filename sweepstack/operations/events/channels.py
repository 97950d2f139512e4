"""The places that are told: a webhook takes JSON, a topic takes plain text with headers.

One POST to an address that a person named. It is a secret: in no message, no record and no log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sweepstack.config.events import EventsConfig, Kind, is_private, is_topic
from sweepstack.core.budget import Budget
from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.operations.events.event import Event

if TYPE_CHECKING:
    from urllib3 import PoolManager


PRIORITIES: Mapping[Kind, str] = {
    "failed": "high",
    "hung": "high",
    "preempted": "high",
    "gone": "high",
    "lease": "high",
    "clock": "high",
    "balance": "urgent",
    "budget": "high",
    "audit": "high",
}
"""What is in none of them waits for a person without costing more by the minute: `default`."""
TAGS: Mapping[Kind, str] = {"verified": "white_check_mark", "drained": "checkered_flag", "budget": "moneybag"}


@dataclass(frozen=True)
class Channel:
    """`key`: its name in the record of what was told. `shown`: its name in messages. `where`: the name of the
    environment variable that holds its address, or the address. `token`: the variable that holds its token."""

    key: str
    shown: str
    where: str
    kinds: frozenset[Kind]
    topic: bool = False
    token: str | None = None

    def unset(self) -> str:
        """The variable that it needs and that has no value here; "" if none."""
        needed = ("" if "://" in self.where else self.where, self.token or "")
        return next((name for name in needed if name and not os.environ.get(name)), "")

    def send(self, event: Event) -> str:
        """Sends one message. Returns "" when it was taken, else why not, without the address. Blocks as `post` does."""
        url = self.where if "://" in self.where else os.environ.get(self.where, "")
        if not self.topic:
            return post(url, json.dumps(event.as_json()).encode(), {"Content-Type": "application/json"})
        if not is_topic(url):
            return "what it holds is no topic's address, such as https://ntfy.example/my-sweeps"
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Title": _header(f"{event.stack}: {event.kind}"),
            "Priority": PRIORITIES.get(event.kind, "default"),
            "Tags": ",".join(filter(None, (TAGS.get(event.kind, "warning"), event.kind))),
        }
        if self.token is not None:
            if not is_private(url):
                return "its token is sent by https only"
            token = os.environ.get(self.token, "").strip()
            if not token.isascii() or not token.isprintable():
                return f"what {self.token} holds is no token"
            headers["Authorization"] = f"Bearer {token}"
        return post(url, f"{event.words}.\nNext: {event.next}".encode(), headers)


def channels_of(config: EventsConfig | None, budget: Budget | None) -> list[Channel]:
    """Every place to tell, each once. The budget's own webhook is told of the budget, whatever the kinds are."""
    found: dict[str, Channel] = {}
    if config is not None and config.webhook is not None:
        found[config.webhook] = _webhook(config.webhook, frozenset(config.kinds))
    if budget is not None and budget.webhook is not None:
        same = found.get(budget.webhook, _webhook(budget.webhook, frozenset()))
        found[budget.webhook] = replace(same, kinds=same.kinds | {"budget"})
    channels = list(found.values())
    if config is not None and config.ntfy is not None:
        named = "://" not in config.ntfy
        key = f"ntfy-{config.ntfy if named else sha256_hex(config.ntfy.encode())[:12]}"
        shown = f"ntfy ({config.ntfy})" if named else "ntfy"
        channels.append(Channel(key, shown, config.ntfy, frozenset(config.kinds), topic=True, token=config.token))
    return channels


def _webhook(name: str, kinds: frozenset[Kind]) -> Channel:
    return Channel(f"webhook-{name}", f"the webhook ({name})", name, kinds)


def _header(text: str) -> str:
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)


CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0
TRIES = 3
BACKOFF = 0.3
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Sends `body`. Returns "" when a server took it (2xx), else why not, without the URL. Raises nothing.

    Tries again on refused and broken connections, timeouts and the server's own trouble. Blocks for at most
    `TRIES + 1` timeouts and the pauses between them (half a minute); call it from a thread.
    """
    import logging

    import urllib3

    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        host = None
    if not host:
        return "what it holds is no http(s) URL"
    # The library logs each request and each retry with the path, and the path is where such URLs keep their secret.
    for logger in ("urllib3.connectionpool", "urllib3.util.retry"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    retries = urllib3.Retry(
        total=TRIES,
        redirect=0,
        status_forcelist=_AGAIN,
        allowed_methods=None,
        backoff_factor=BACKOFF,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    try:
        with _pool(parts.scheme, host) as pool:
            answer = pool.request(
                "POST",
                url,
                body=body,
                headers={"User-Agent": "sweepstack", **headers},
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
                retries=retries,
                redirect=False,
            )
    except urllib3.exceptions.MaxRetryError as error:
        return f"{_kind(error.reason)} ({TRIES + 1} tries)"
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return _kind(error)
    return "" if 200 <= answer.status < 300 else f"its server answered {answer.status}"


def _pool(scheme: str, host: str) -> PoolManager:
    from urllib.request import getproxies, proxy_bypass

    import urllib3

    proxy = getproxies().get(scheme)
    if proxy and not proxy_bypass(host):
        return urllib3.ProxyManager(proxy)
    return urllib3.PoolManager()


def _kind(error: BaseException | None) -> str:
    """An error by its kind alone: the words of these errors hold host and path."""
    name = type(error).__name__ if error is not None else ""
    return {
        "NewConnectionError": "the connection was refused",
        "ConnectTimeoutError": "no connection in time",
        "ReadTimeoutError": "no answer in time",
        "NameResolutionError": "its host has no address",
        "SSLError": "its certificate does not hold",
        "ProtocolError": "the connection broke",
        "ResponseError": "its server is in trouble",
    }.get(name, name or "no answer")
