"""The connections to one box: who is asked next, first contact, and what may be asked twice."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from sweepstack.channel import agent_source
from sweepstack.channel.pinned_keys import HostKeyChanged
from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.channel.ssh import pin_host_key
from sweepstack.channel.ssh.link import AgentWay, Link, Silence, SshLink
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.common.errors import PlatformError, SweepstackError, Unreachable

MOST_LINKS = 8
"""At once, over all threads: sshd takes ten sessions a connection."""
MOST_IDLE = 3
IDLE_SECONDS = 60.0
"""Seconds. A link that was not used for longer is not asked any more: the box may have given it up."""
SKEW_SECONDS = 5.0
PAUSES = (0.5, 2.0)
"""Between tries to connect, where an sshd turns callers away for the moment."""
_BUSY = ("Connection reset by", "Connection closed by", "kex_exchange_identification", "Broken pipe", "mux_client")

T = TypeVar("T")


_SHARED: dict[str, SshLinks] = {}
_SHARING = threading.Lock()


def shared(
    way: Way,
    native_id: str,
    settings: Mapping[str, Any],
    python: str,
    program: Callable[[Mapping[str, Any]], bytes] = agent_source.agent,
) -> SshLinks:
    """The connections of this process to this box, this way: every channel to it that is made has the same ones."""
    name = repr((way.facts, native_id, json.dumps(dict(settings), sort_keys=True), python, program.__module__))
    with _SHARING:
        if name not in _SHARED:
            connect = partial(SshLink, native_id=native_id, settings=settings, python=python, program=program)
            _SHARED[name] = SshLinks(way, connect)
        return _SHARED[name]


class Links:
    """Connections to one box. Threads share it; a process that was forked makes its own."""

    def __init__(self, way: AgentWay, connect: Callable[[Any], Link]) -> None:
        """`connect` makes one more of them, to whatever answers over there."""
        self.way = way
        self._make = connect
        self._look_again: Callable[[], AgentWay] | None = None
        self._advice, self._follows = "", False
        self._idle: list[Link] = []
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_LINKS)
        self._owner = os.getpid()
        self.python = ""
        """The interpreter of the box, once it was reached."""
        self.skew = 0.0
        """Seconds that its clock is ahead of ours, once it was reached; 0 below `SKEW_SECONDS`."""

    def ask(self, do: Callable[[Link], T], *, again: bool, about: Mapping[str, Any] | None = None) -> T:
        """Runs `do` on a connection of its own. `again`: it may be done twice; then a connection that breaks under it
        is replaced, once. Else it is only begun on one that was just seen to answer. `about`: the box that is meant,
        where several are behind these connections.

        Raises what `do` raises; Unreachable, which says more where it can be told why nothing comes.
        """
        try:
            return self._ask(do, again, about)
        except Silence as error:
            raise Unreachable(f"{error}{self._on_silence()}") from error

    def _ask(self, do: Callable[[Link], T], again: bool, about: Mapping[str, Any] | None) -> T:
        with self._room:
            if not again:
                with self._borrowed(about, proved=True) as link:
                    return do(link)
            with self._borrowed(about, proved=False) as link:
                try:
                    return do(link)
                except Unreachable:
                    if link.healthy or not link.reused:  # the box itself says so, or was just connected to
                        raise
            with self._borrowed(about, proved=True, fresh=True) as link:
                return do(link)

    def follow(self, look_again: Callable[[], AgentWay] | None, advice: str, *, known: bool) -> None:
        """Looks for the box elsewhere, from now on, where nothing of ours answers at its address. `look_again`: the way
        by what is said now; None: it keeps its address. `advice`: a sentence for the error where that is no other one,
        or "". `known`: whether its platform's profile says so; then that holds for all that share these connections.
        """
        if known or not self._follows:
            self._look_again, self._advice, self._follows = look_again, advice, known

    def close(self) -> None:
        """Ends all that is idle, and the shared connection. The next question connects anew."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()
        self.way.close()

    def first_contact(self) -> None:
        """What comes before the first connection of all (`_meet`). Raises Unreachable, HostKeyChanged."""
        self._meet(self.way)

    @contextlib.contextmanager
    def _borrowed(self, about: Mapping[str, Any] | None, *, proved: bool, fresh: bool = False) -> Iterator[Link]:
        link = None if fresh else self._take()
        if link is not None and proved:
            link.about = None
            try:
                link.ask("ping", deadline=15)
            except PlatformError:
                link.close()
                link = None
        if link is None:
            link = self._connect()
        link.about = about
        try:
            yield link
        finally:
            self._give_back(link)

    def _take(self) -> Link | None:
        with self._lock:
            if self._owner != os.getpid():  # after a fork they are the parent's
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                link = self._idle.pop()
                if link.alive and time.monotonic() - link.used < IDLE_SECONDS:
                    link.reused = True
                    return link
                link.close()
        return None

    def _give_back(self, link: Link) -> None:
        with self._lock:
            if link.alive and len(self._idle) < MOST_IDLE:
                self._idle.append(link)
                return
        link.close()

    def _connect(self) -> Link:
        """Connects; where the box is not found, at the address that it has now. Nothing was sent to it before."""
        tried = self.way
        try:
            return self._connect_to(tried)
        except (Unreachable, HostKeyChanged) as error:
            if not self._moved(tried):
                if self._advice and type(error) is Unreachable:
                    raise Unreachable(f"{error}. {self._advice}") from error
                raise
        return self._connect_to(self.way)

    def _moved(self, tried: AgentWay) -> bool:
        """Whether the box is to be looked for elsewhere than at `tried`: then `way` says where."""
        if self._look_again is None:
            return False
        with self._lock:  # of several threads, one looks
            if self.way.facts == tried.facts:
                try:
                    self.way = self._look_again()
                except SweepstackError:
                    return False  # the error that it had says more
            return self.way.facts != tried.facts

    def _connect_to(self, way: AgentWay) -> Link:
        self._meet(way)
        for pause in (*PAUSES, None):
            try:
                link = self._make(way)
                self.python = link.python
                self.skew = link.skew if abs(link.skew) >= SKEW_SECONDS else 0.0
                return link
            except Unreachable as error:
                if pause is None or not any(word in str(error) for word in _BUSY):
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    # -- what each kind of way has of its own

    def _meet(self, way: Any) -> None:
        """Before each connection: nothing, unless a kind has a first contact."""

    def _on_silence(self) -> str:
        """To be added to the words about a box from which nothing came; "" for nothing."""
        return ""


class SshLinks(Links):
    """Connections by SSH."""

    way: Way

    def _meet(self, way: Way) -> None:
        """Pins the host key where none is. Raises Unreachable; HostKeyChanged when another command pinned another."""
        pin_host_key.first(way)

    def _on_silence(self) -> str:
        return ssh_mtu.advice(self.way)
