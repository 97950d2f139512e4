"""Sends requests to a host, where `onbox.host` answers; all callers share one SSH connection."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweepstack.channel import agent_source, interpreters
from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.prefetch import Answers, PrefetchedAnswer, Question
from sweepstack.channel.ssh import route as ssh_route
from sweepstack.channel.ssh.link import Link
from sweepstack.channel.ssh.links import SshLinks, shared
from sweepstack.channel.ssh.options import Way
from sweepstack.core.box_end import STAYS, Moves
from sweepstack.onbox.common import errors
from sweepstack.onbox.common.errors import OutcomeUnknown, PlatformError, StillCreating, Unreachable

HOST = (*agent_source.AGENT, "host")
"""The folders of sweepstack/onbox that are sent to a host."""
READS = frozenset(
    {"account", "find_by_tag", "get", "list_tagged", "list_volumes", "get_volume", "where", "where_volume"}
)
"""Requests that change nothing: sent again when an answer is lost."""
FRESH_SECONDS = 2.0
"""For so long a channel uses the folder that the last answer about the box named."""
_MOVES = (
    "Its platform gives a host another address at each start. If it was started since, its console shows the new one: "
    "write it {}"
)
_WRITE_NAME = "into ~/.ssh/config (Host {}), and run the command again"
_WRITE = "into the stack file (boxes.<name>.host); `pulumi up` then proves that it is the same host"
CALL_SECONDS = 180.0
"""Limit for one request. A stop may wait for the lock of another stop, and for processes that ignore SIGTERM."""


_SEEN: dict[tuple[str, str, str], tuple[float, tuple[str, dict[str, str]]]] = {}
_LOOKING = threading.Lock()


class Caller:
    """Sends requests to one host. `grace`: seconds from SIGTERM to SIGKILL on the host. Safe to share between
    threads."""

    def __init__(
        self,
        address: HostAddress,
        *,
        grace: float = 5.0,
        python: str = "python3",
        source: Callable[[Mapping[str, Any]], bytes] | None = None,
        reads: frozenset[str] = READS,
        moves: Moves | None = None,
    ) -> None:
        """`source`: what is sent to the host and answers there, `program` for None; `reads`: its requests that change
        nothing; `moves`: when the host's address changes (see `Moves`)."""
        self.address, self.grace, self._moves = address, grace, moves
        self._source, self._reads = source or program, reads
        self._python, self._lock = python, threading.Lock()
        self._links: SshLinks | None = None
        self._known = Answers()
        self._boxes: dict[tuple[str, str], Answers] = {}

    @functools.cached_property
    def way(self) -> Way:
        """The SSH route to the host. Raises what `ssh_route.way_to` raises."""
        return ssh_route.way_to(self.address)

    def ask(self, verb: str, **args: Any) -> Any:
        """The host's answer to `verb`. Blocks, for `CALL_SECONDS` at most. Raises what the verb raised on the host;
        Unreachable; OutcomeUnknown when a verb that changes something was sent and its answer was lost."""
        if verb not in self._reads:
            self._known.clear()
        known = self._known.take("verb", {"name": verb, "args": args})
        return self._understood(verb, known.get()[1] if known is not None else self._sent(verb, args))

    def prefetch(self, native_id: str, account: str, questions: Sequence[Question], tagged: str = "") -> None:
        """Prefetches in one round trip: the box, the answers to `questions` about it, and with `tagged` the boxes whose
        tag begins with that. Each answer then serves one later call of `ask`, or of a channel with `answers`. Raises
        Unreachable."""
        about = {"native_id": native_id, "account": account}  # the host itself finds the box's folder
        verbs = [_question("get", about)]
        if tagged:
            verbs.append(_question("list_tagged", {"prefix": tagged}))
        asked = [*verbs, *questions]
        came = self._looked(lambda link: link.ask_all(asked), about)
        self._known.keep(verbs, came[: len(verbs)])
        self.answers(native_id, account).keep(questions, came[len(verbs) :])

    def _looked(self, do: Callable[[Link], list[PrefetchedAnswer]], about: Mapping[str, Any]) -> list[PrefetchedAnswer]:
        """Runs `do` with the interpreter that worked on this host last time; where that fails, with the usual one."""
        usual = self._python
        if self._links is None:
            self._python = interpreters.interpreter_of(self.way)
        try:
            came = self.connections().ask(do, again=True, about=about)
        except PlatformError as error:
            if self._python == usual:
                raise
            interpreters.forget(self.way)  # that interpreter may be gone, or may not start
            self._python, self._links = usual, None
            if type(error) is not PlatformError:
                raise
            came = self.connections().ask(do, again=True, about=about)
        interpreters.remember(self.way, self.connections().python)
        return came

    def answers(self, native_id: str, account: str) -> Answers:
        """The prefetched answers about a box."""
        with self._lock:
            return self._boxes.setdefault((native_id, account), Answers())

    def _sent(self, verb: str, args: Mapping[str, Any]) -> Any:
        sent = False

        def do(link: Link) -> Any:
            nonlocal sent
            sent = True
            return link.ask("verb", deadline=CALL_SECONDS, name=verb, args=args)

        try:
            return self.connections().ask(do, again=verb in self._reads)
        except Unreachable as error:
            if sent and verb not in self._reads:
                raise OutcomeUnknown(f"{self.address}: {verb} was sent, and its answer was lost: {error}") from error
            raise

    def _understood(self, verb: str, said: Any) -> Any:
        if not isinstance(said, dict):
            raise Unreachable(f"{self.address} does not answer as agreed")
        if "raised" in said:
            raise self._error(said)
        if verb in ("get", "create", "destroy", "stop", "turn_on"):
            self._remember(said.get("where"))
        return said.get("is")

    def where(self, native_id: str, account: str) -> tuple[str, dict[str, str]]:
        """A box's folder on the host, and its mounts (path on the box → path on the host). Not asked again within
        `FRESH_SECONDS` of an answer that named them."""
        with _LOOKING:
            known = _SEEN.get((str(self.address), native_id, account))
        if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        root, mounts = self.ask("where", native_id=native_id, account=account)
        return root, mounts

    def _remember(self, where: Any) -> None:
        """Keeps the box's folder and mounts that the last answer named; what was known of other boxes is dropped."""
        address = str(self.address)
        with _LOOKING:
            for one in [one for one in _SEEN if one[0] == address]:
                del _SEEN[one]
            if where is not None:
                native_id, account, root, mounts = where
                _SEEN[address, native_id, account] = time.monotonic(), (root, mounts)

    @property
    def skew(self) -> float:
        """Seconds that the host's clock is ahead of ours; 0 before the first answer."""
        return self._links.skew if self._links is not None else 0.0

    def close(self) -> None:
        """Closes the open connections. The next request connects again. Idempotent."""
        with self._lock:
            links, self._links = self._links, None
        if links is not None:
            links.close()

    def connections(self) -> SshLinks:
        """The connections to the agent that serves the host and every box on it. All callers of this process share
        them."""
        with self._lock:
            if self._links is None:
                way, where = self.way, f"the host {self.address.login}"
                settings = {"root": self.address.root, "grace": self.grace}
                name = self.address.name
                again = None if self._moves in STAYS or not name else lambda: ssh_route.way_to(self.address)
                advice = _MOVES.format(_WRITE_NAME.format(name) if name else _WRITE) if self._moves == "start" else ""
                self._links = shared(way, where, settings, self._python, self._source)
                self._links.follow(again, advice, known=self._moves is not None)
            return self._links

    def _error(self, said: Mapping[str, Any]) -> Exception:
        kind, text = getattr(errors, str(said["raised"]), PlatformError), f"{self.address}: {said.get('text', '')}"
        if kind is StillCreating:
            return StillCreating(**said["known"])
        made: Exception = kind(text)
        return made


def _question(verb: str, args: Mapping[str, Any]) -> Question:
    return Question("verb", {"name": verb, "args": dict(args)}, CALL_SECONDS, of_box=False)


def program(settings: Mapping[str, Any]) -> bytes:
    """The source that the host's Python reads and runs. See `agent_source.program`."""
    return agent_source.program(settings, HOST, "sweepstack.onbox.host.agent", keep=settings["root"])
