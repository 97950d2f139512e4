"""The places that are told: a webhook takes JSON, a topic takes plain text with headers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweepstack.billing.budget import Budget
from sweepstack.config.events import EventsConfig, Kind, is_private, is_topic
from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.operations.events.event import Event
from sweepstack.operations.events.web import post

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
