"""What `pulumi import` of a box refuses before it asks any platform; the rest: tests/rented/test_imported.py."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.host.platform import Platform
from sweepstack.provider.resources.imported import look_up
from sweepstack.provider.session import Operation, Session
from tests.simulators.rental import stack_of

ROOT = Path(__file__).resolve().parents[3]


def no_platform(adapter: str) -> Platform:
    raise AssertionError(f"{adapter} is asked")


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("My_Box", "runpod:a1b2", "can't be a box's name"),
        ("mine", "a1b2", "does not say where"),
        ("mine", "vastai:a1b2", "has no box on vastai"),
        ("mine", "runpd:a1b2", 'did you mean "runpod"'),
    ],
)
def test_it_is_said_at_once(name: str, asked: str, words: str) -> None:
    session = Session(ROOT, lambda *_: None, threading.Event())
    urn = f"urn:pulumi:{stack_of('runpod')}::sweepstack::sweepstack:index:Box::{name}"
    with pytest.raises(SweepstackError) as said:
        look_up(Operation(session, urn, 0), asked, no_platform)
    assert words in str(said.value)
