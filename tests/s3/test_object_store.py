"""A bucket as an object store, on a real server; and what people read when it can't be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from sweepstack.core.bucket_address import S3Address
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.location import object_store_at
from sweepstack.evidence.object_store import ObjectStore
from sweepstack.evidence.s3.object_store import S3Store
from sweepstack.evidence.s3.objects import head
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, EvidenceMissing
from sweepstack.platforms.common import s3_client
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.evidence.object_store_contract import *  # noqa: F403
from tests.unit.evidence.world import IDENTITY, World


@pytest.fixture
def objects(uri: str) -> ObjectStore:
    return object_store_at(uri)


def test_founding_is_idempotent_and_exclusive(uri: str) -> None:
    assert EvidenceStore.read_marker(uri) is None
    with pytest.raises(EvidenceMissing, match=r"holds no sweep\.json"):
        EvidenceStore.open(uri)
    first = EvidenceStore.found(uri, IDENTITY, "p", "s")
    assert EvidenceStore.found(uri, IDENTITY, "p", "s").marker == first.marker == EvidenceStore.read_marker(uri)
    with pytest.raises(EvidenceError, match="holds the evidence of p/s"):
        EvidenceStore.found(uri, "zzzzzzzzzz", "p", "s2")


def test_a_server_that_ignores_conditions_is_refused_each_time(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: it was refused once, and the marker that it had left made the next try a yes."""
    s3 = s3_client.client()
    put = s3.put_object

    def careless(**words: object) -> object:
        return put(**{name: value for name, value in words.items() if name not in ("IfMatch", "IfNoneMatch")})

    monkeypatch.setattr(s3, "put_object", careless)
    for _ in range(2):
        with pytest.raises(EvidenceError, match="ignores conditional writes"):
            EvidenceStore.found(uri, IDENTITY, "p", "s")


def test_our_own_write_whose_answer_was_lost_counts(objects: S3Store) -> None:
    tag = objects.write("records/lease.json", b"ours", over="")
    assert objects.write("records/lease.json", b"ours", over="") == tag
    assert objects.write("records/lease.json", b"later", over=tag) != tag


def test_a_deleted_marker_is_unknown_not_empty(world: World, server: S3Server) -> None:
    address = S3Address.parse(world.uri)
    server.sdk().delete_object(Bucket=BUCKET, Key=f"{address.prefix}/sweep.json")
    for ask in (world.store.losses, world.store.lease, lambda: EvidenceStore.open(world.uri)):
        with pytest.raises(EvidenceMissing):
            ask()
    assert EvidenceStore.read_marker(world.uri) is None
    with pytest.raises(EvidenceError, match=r"holds records and no sweep\.json"):
        EvidenceStore.found(world.uri, IDENTITY, "project", "sweep-t")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong-secret-1", "refused these keys .*AWS_ACCESS_KEY_ID"),
        ("AWS_ACCESS_KEY_ID", "nobody", "refused these keys .*AWS_ACCESS_KEY_ID"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", "127.0.0.1:9 does not answer"),
        ("AWS_ENDPOINT_URL", "no address", "AWS settings"),
    ],
)
def test_what_nobody_can_know_is_not_absent(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    s3_client.forget()
    key = "records/births/none.json"
    objects = object_store_at(world.uri)
    for ask in (
        lambda: EvidenceStore.open(world.uri),
        lambda: EvidenceStore.read_marker(world.uri),
        lambda: objects.read(key),
        lambda: objects.names("records/births"),
        lambda: objects.holds_any("records"),
        lambda: objects.write(key, b""),
        lambda: check_files(world.store, world.verify().receipt, [], full=True),
        lambda: world.store.copies.look("a"),
        lambda: world.store.copies.manifest("a"),
    ):
        with pytest.raises(EvidenceError, match=words) as error:
            ask()
        assert value not in str(error.value) or name == "AWS_ENDPOINT_URL"
        assert not isinstance(error.value, EvidenceMissing)


def test_without_keys_it_says_which_to_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3_client.forget()
    with pytest.raises(EvidenceError, match="no keys for object storage: set AWS_ACCESS_KEY_ID"):
        EvidenceStore.open(world.uri)


def test_a_bucket_that_is_not_there_is_said() -> None:
    for ask in (EvidenceStore.open, EvidenceStore.read_marker):
        with pytest.raises(EvidenceError, match=r"s3://nowhere/x/sweep\.json: the bucket is not there\. Make it"):
            ask("s3://nowhere/x")
    with pytest.raises(EvidenceError, match="the bucket is not there"):
        head(S3Store(S3Address.parse("s3://nowhere/x")), "cells/a/best.pt")  # whose bare 404 says less


def test_an_object_that_may_not_be_looked_at_is_not_absent(objects: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise ClientError({"Error": {"Code": "403"}, "ResponseMetadata": {"HTTPStatusCode": 403}}, "HeadObject")

    monkeypatch.setattr(s3_client.client(), "head_object", refused)
    with pytest.raises(EvidenceError, match="refused these keys"):
        head(objects, "cells/a/best.pt")


def test_a_bucket_is_no_folder(world: World) -> None:
    with pytest.raises(EvidenceError, match="is not a folder"):
        _ = world.store.root
    assert world.store.writable(), "as far as that can be told"


def test_keys_and_server_stand_in_no_address() -> None:
    for uri in ("s3://key:secret@lab/x", "s3://127.0.0.1:9000/lab"):
        with pytest.raises(EvidenceError, match="without keys or a server") as error:
            EvidenceStore.open(uri)
        assert "secret@" not in str(error.value)


def test_an_edited_record_is_damaged(world: World, server: S3Server) -> None:
    prefix = S3Address.parse(world.uri).prefix
    server.sdk().put_object(Bucket=BUCKET, Key=f"{prefix}/records/births/box-0-g1.json", Body=b"{")
    with pytest.raises(EvidenceDamaged, match=r"births/box-0-g1\.json is damaged"):
        world.store.births()


def test_many_records_are_all_listed(objects: S3Store, tmp_path: Path) -> None:
    """More than the thousand that one answer holds."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: objects.write(f"records/many/{number:05}.json", b"x"), range(1100)))
    assert len(objects.names("records/many")) == 1100
    assert len(objects.items("records")) == 1100
