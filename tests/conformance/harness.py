"""What the suite needs to know of an adapter's world: one `harness_<adapter>.py` for each, found by its name.

The adapter says what it believes; the harness says what is true (`rentals`), from the platform's own books.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Platform, VolumeRecord

CREATE = """
import importlib, json, os, pkgutil, sys, traceback
from sweepstack.core.extensions import module_of
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.common import reach_box
from sweepstack.platforms.registry import load_platform
adapter, asked, seconds, reach_box.ON, count = json.loads(sys.argv[1])
package = importlib.import_module(module_of(adapter.partition(":")[0]).rpartition(".")[0])
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(package.__name__ + "." + module.name)
def create():
    try:
        found = load_platform(adapter).create(BoxRequest(**asked), wait=Wait(seconds))
        os.write(1, found.native_id.encode() + b"\\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
pids = [os.fork() or create() for _ in range(count)]
sys.exit(any([os.waitpid(pid, 0)[1] for pid in pids]))
"""
"""All is imported once, and then the processes begin at the same moment."""
VERBS = ("create", "read", "delete", "start")
FAULTS = {
    "too_many": "429 without a time",
    "too_many_retry_after": "429 with Retry-After",
    "error_before": "5xx, nothing was done",
    "error_after": "5xx, it was done",
    "lost_request": "the connection ends before anything was done",
    "lost_answer": "it was done, the connection ends",
    "hang_before": "no answer, nothing was done",
    "hang_after": "no answer, it was done",
    "truncated": "it was done, half of the answer comes",
    "html": "a proxy's page with an error status",
    "html_ok": "a proxy's page with status 200",
    "stale_list": "a list from before the last write",
    "out_of_capacity": "nothing of the kind is left",
    "low_balance": "the money does not suffice",
    "no_key": "the key is not accepted",
    "never_ready": "it runs, bills, and nothing answers on it",
    "dies_while_starting": "it stops by itself before it is ready",
    "preempted": "it is stopped by the platform without notice",
    "vanished": "it is ended behind our back",
    "delete_lingers": "the delete is accepted, and the box stays for a while",
    "delete_stays": "the delete is accepted, and nothing happens",
    "foreign_account": "the key is another account's",
    "odd_status": "a status that no document has",
    "zero_gpus": "it starts without the cards that it had",
    "no_room": "it can't start: its cards are taken",
    "says_no": "a 200 whose body says that it was not done",
    "refused_yet_made": "a bid is refused with an error, and yet there is a contract that bills",
}
WIRE = frozenset(
    {"too_many", "too_many_retry_after", "error_before", "lost_request", "hang_before", "hang_after", "truncated"}
    | {"html", "html_ok"}
)
"""Faults of the way to a platform, which its code for HTTP meets before the adapter reads anything."""


class Harness(Protocol):
    """One adapter in a world of its own. `Harness(tmp_path, monkeypatch, machines)`: with `machines` its boxes are real
    (the test is marked so), else only the API answers, which is fast."""

    adapter: str
    host: bool
    """Boxes are processes of this host, and a verb can be cut in its middle by killing ours: `cut_*`, `turn` work."""
    wire: bool
    """There is an HTTP API between the adapter and its platform: `inject` works."""
    price: float | None
    """USD an hour of the box of `request`, None where the platform says."""
    killed_by_stop: tuple[str, ...]
    """Tiers whose content a stop ends."""
    kept_by_stop: tuple[str, ...]
    """Tiers whose content a stop must keep, on a box with a volume at mnt/durable."""
    plays: frozenset[tuple[str, str]]
    """(fault, verb) pairs that `inject` can do; on a `wire` all of them that make sense."""

    secrets: tuple[str, ...]
    """Texts that may stand in no error."""
    proved_by: str
    """Where there is one: the tests of `make test` that prove its promises. Then `make proof` plays the suite; of it,
    `make test` plays what is `quick`."""
    quick: frozenset[str | tuple[str, str]]
    """Where there are any: tests, and (fault, verb) pairs, that `make test` plays all the same."""
    wire_of: str
    """Where there is one: another adapter that speaks by the same code, with which `make test` plays WIRE faults."""
    impossible: frozenset[str]
    """Faults that this platform can't have at all, each for a reason that stands beside it."""

    def connect(self) -> Platform:
        """The adapter as the provider gets it, but less patient."""
        ...

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        """A small box. `changes`: fields of BoxRequest."""
        ...

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        """`ensure_volume` with what this platform wants to know."""
        ...

    def rentals(self) -> set[str]:
        """Native ids of the boxes that bill now, by the platform's own books, of all accounts."""
        ...

    def rate(self, native_id: str) -> float:
        """Where boxes are rented: USD an hour that this one bills now, by the platform's own books."""
        ...

    def doubled(self) -> dict[str, list[str]]:
        """Tags that two boxes carried at the same time, with their ids."""
        ...

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        """From now on this goes wrong, so many times (None: until `repair`) when the platform is asked for `verb`."""
        ...

    def outbid(self, native_id: str) -> None:
        """Where spot boxes are: another customer bids more than this one until `repair`."""
        ...

    def odd_cards(self) -> tuple[str, ...]:
        """Where the platform has such: lists cheap parts of cards (MIG), and cards of makers whose images are others.
        Their names."""
        ...

    def slow_boot(self, seconds: float) -> None:
        """New boxes take so long to be ready."""
        ...

    def lose_answers(self) -> None:
        """Creates are carried out and their answers are lost."""
        ...

    def fail_late(self) -> None:
        """Creates are carried out and then reported as failed."""
        ...

    def make_unreadable(self, native_id: str) -> None:
        """The platform still has the box, and answers nonsense about it."""
        ...

    def make_foreign(self) -> None:
        """Another account is at hand now."""
        ...

    def cut_off(self) -> None:
        """The platform does not answer."""
        ...

    def remove_by_hand(self, native_id: str) -> None:
        """Another person or program ends the box, and we are not told."""
        ...

    def repair(self) -> None:
        """Everything answers again, to its real account."""
        ...

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        """The ids that so many processes get for the same request at the same time."""
        ...

    def cut_destroy(self, native_id: str, account: str) -> None:
        """`host`: a destroy whose process is killed when a part of the box is gone."""
        ...

    def cut_stop(self, native_id: str, account: str) -> None:
        """`host`: a stop whose process is killed when the processes have ended and the tiers are not wiped yet."""
        ...

    def turn(self, native_id: str, account: str, what: str, times: int) -> subprocess.Popen[bytes]:
        """`host`: another process that stops, or starts, the box again and again."""
        ...

    def close(self) -> None:
        """Ends its world. Raises when the adapter spoke to the platform in words that it does not know."""
        ...


def created_at_once(adapter: str, request: BoxRequest, count: int, *, machines: bool, seconds: float = 180) -> set[str]:
    """The ids that so many processes get for the same request at the same time. `machines`: each looks whether the box
    can be reached."""
    fields = ("tag", "name", "public_key", "price_per_hour", "max_price", "resources", "pods")
    asked = {name: getattr(request, name) for name in fields}
    command = [sys.executable, "-c", CREATE, json.dumps([adapter, asked, seconds, machines, count])]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, start_new_session=True)
    try:
        answers = running.communicate(timeout=2 * seconds)[0].decode().split()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0
    assert len(answers) == count
    return set(answers)


def variants(adapter: str) -> list[str]:
    """The adapter, and each other world of it that its harness has: `adapter+variant`."""
    return [adapter, *(f"{adapter}+{variant}" for variant in getattr(_module(adapter), "VARIANTS", {}))]


def harness_class(name: str) -> Any:
    """The class of the harness of an adapter, or of a variant of it."""
    adapter, _, variant = name.partition("+")
    module = _module(adapter)
    return module.VARIANTS[variant] if variant else module.Harness


def _module(adapter: str) -> Any:
    """The module of an adapter's harness. Fails when there is none: the suite is not optional."""
    path = Path(__file__).with_name(f"harness_{adapter}.py")
    if not path.exists():
        pytest.fail(f"the adapter {adapter!r} has no {path.name}: the suite is not optional", pytrace=False)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
