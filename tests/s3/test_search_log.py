"""The log of a search in a bucket, on a real server: two `tend`s, crashes, and a server that keeps to no condition."""

from __future__ import annotations

import itertools
import threading

import pytest
from hypothesis import HealthCheck, given, settings

from sweepstack.evidence.location import object_store_at
from sweepstack.evidence.search_log import KEY, append, local_log, log_at, read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.search.decisions import beginning
from sweepstack.extensions.search.space import suggest
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError
from sweepstack.platforms.common import s3_client
from tests.extensions.search.test_crashes import ASKED, PLAN, Plan, play
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.evidence.world import IDENTITY

_numbers = itertools.count(1)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLAN)
def test_two_tends_and_crashes_lose_nothing_in_a_bucket(plan: Plan) -> None:
    uri = f"s3://{BUCKET}/searches/s{next(_numbers)}"
    EvidenceStore.found(uri, IDENTITY, "p", "s")
    play(object_store_at(uri), plan)


def test_of_eight_that_write_at_once_one_is_taken_each_time(uri: str) -> None:
    """Each draws by the log that it read; those that come second read again. All that were drawn are there, once."""
    EvidenceStore.found(uri, IDENTITY, "p", "s")
    objects = object_store_at(uri)
    append(objects, read_search_log(objects), beginning(ASKED))
    refused, gate = [], threading.Barrier(8)

    def tend() -> None:
        mine = object_store_at(uri)
        gate.wait()
        while len((log := read_search_log(mine)).suggested) < ASKED.at_most.cells:
            try:
                append(mine, log, [suggest(ASKED, log)])
            except EvidenceChanged:
                refused.append(1)

    threads = [threading.Thread(target=tend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    log = read_search_log(objects)
    assert list(log.suggested) == [f"s{number}" for number in range(ASKED.at_most.cells)]
    assert len(log.steps) == ASKED.at_most.cells


def test_the_server_is_killed_between_the_draw_and_its_answer(uri: str, server: S3Server) -> None:
    """What it took counts, and what it did not take was never drawn; either way the next round goes on from there."""
    EvidenceStore.found(uri, IDENTITY, "p", "s")
    objects = object_store_at(uri)
    log = append(objects, read_search_log(objects), beginning(ASKED))
    server.stop()
    try:
        with pytest.raises(EvidenceError):
            append(objects, log, [suggest(ASKED, log)])
    finally:
        server.start()
        s3_client.forget()
    assert read_search_log(objects).steps == log.steps
    again = append(objects, read_search_log(objects), [suggest(ASKED, log)])
    assert append(objects, log, [suggest(ASKED, log)]).steps == again.steps, "our own write, whose answer was lost"
    with pytest.raises(EvidenceChanged):
        append(objects, log, [suggest(ASKED, log), suggest(ASKED, again)])


def test_a_server_that_ignores_if_match_takes_no_log(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such ones keep to `If-None-Match` alone, which is what `up` asks of them: the second of two `tend`s would have
    written over what the first one drew."""
    EvidenceStore.found(uri, IDENTITY, "p", "s")
    put = s3_client.client().put_object

    def careless(**words: object) -> object:
        return put(**{name: value for name, value in words.items() if name != "IfMatch"})

    monkeypatch.setattr(s3_client.client(), "put_object", careless)
    objects = object_store_at(uri)
    EvidenceStore.found(uri, IDENTITY, "p", "s")
    with pytest.raises(EvidenceError, match="ignores conditional writes"):
        append(objects, read_search_log(objects), beginning(ASKED))
    assert objects.read(KEY) is None
    assert EvidenceStore.found(uri, IDENTITY, "p", "s").marker.stack == "s"


def test_what_was_read_of_a_bucket_is_kept_to_complete_names_by(uri: str) -> None:
    EvidenceStore.found(uri, IDENTITY, "p", "s")
    objects = object_store_at(uri)
    log = append(objects, read_search_log(objects), beginning(ASKED))
    assert log_at(uri, lambda: "p", "s").steps == log.steps
    kept = local_log(uri)
    assert kept is not None
    assert kept.read_bytes() == log.data
    log = append(objects, log, [suggest(ASKED, log)])
    assert log_at(uri, lambda: "p", "other").steps == ()
    assert log_at(uri, lambda: "p", "s").steps == log.steps
    assert kept.read_bytes() == log.data
