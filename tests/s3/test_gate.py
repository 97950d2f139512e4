"""The teardown check over object storage: whatever was put in the place of what was verified, the box stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.platforms.common import s3_client
from sweepstack.teardown.box_check import BoxEnding, Verdict
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from tests.read_here import reads_here
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.evidence.world import World, cleared_box

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
Ask = Callable[[bool], Verdict]


@pytest.fixture
def ask(world: World, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Asks whether the box may end; cleared as long as no object is touched."""
    reads_here(monkeypatch)
    facts, approval, seen = cleared_box(world, NOW)

    def check(full: bool) -> Verdict:
        return may_end(BoxEnding(BoxContext(facts, "local"), approval, seen), now=NOW, full=full)

    assert check(True).allowed, check(True).reasons
    assert check(False).allowed
    return check


def refused(ask: Ask, word: str) -> None:
    """By the quick look of a preview and by the full one of a delete; the reason names what it is about."""
    for full in (False, True):
        verdict = ask(full)
        assert not verdict.allowed
        assert word in " ".join(verdict.reasons), verdict.reasons


def objects(world: World, server: S3Server, ending: str) -> list[str]:
    """The keys of this sweep that end so."""
    prefix = world.uri.removeprefix(f"s3://{BUCKET}/")
    found = server.sdk().list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
    return sorted(item["Key"] for item in found if item["Key"].endswith(ending))


HOW: dict[str, dict[str, object]] = {
    "plain": {},
    "sha256": {"ChecksumAlgorithm": "SHA256"},
    "crc32": {"ChecksumAlgorithm": "CRC32"},
    "metadata": {"Metadata": {"sha256": "0" * 64}},
}
ENDINGS = ("model.safetensors", "best.pt", "log.txt", "manifest.json")


def replacements() -> Iterator[Any]:
    """Each file, replaced in each way; in `make test` each file in one way, and one file in each."""
    for way, how in HOW.items():
        for ending in ENDINGS:
            marks = () if ending == "best.pt" or way == "plain" else (pytest.mark.proof,)
            yield pytest.param(ending, how, id=f"{ending}-{way}", marks=marks)


@pytest.mark.parametrize(("ending", "how"), list(replacements()))
def test_object_replaced_between_verify_and_destroy(
    world: World, server: S3Server, ask: Ask, ending: str, how: dict[str, object]
) -> None:
    """Other bytes of the same length under the same key, however they came there; put back, it is cleared again."""
    key = objects(world, server, ending)[0]
    s3 = server.sdk()
    whole = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    s3.put_object(Bucket=BUCKET, Key=key, Body=bytes([whole[0] ^ 1]) + whole[1:], **how)
    refused(ask, world.cells[0].name)
    s3.put_object(Bucket=BUCKET, Key=key, Body=whole)
    assert ask(True).allowed, ask(True).reasons


def test_object_deleted_between_verify_and_destroy(world: World, server: S3Server, ask: Ask) -> None:
    server.sdk().delete_object(Bucket=BUCKET, Key=objects(world, server, "best.pt")[1])
    refused(ask, world.cells[1].name)


def test_object_of_another_cell_in_its_place(world: World, server: S3Server, ask: Ask) -> None:
    """Copied by the server itself, with the checksum of where it came from."""
    one, two = objects(world, server, "best.pt")[:2]
    server.sdk().copy_object(Bucket=BUCKET, Key=two, CopySource={"Bucket": BUCKET, "Key": one})
    refused(ask, world.cells[1].name)


def test_receipt_replaced_between_verify_and_destroy(world: World, server: S3Server, ask: Ask) -> None:
    (key,) = [key for key in objects(world, server, ".json") if "/receipts/" in key]
    s3 = server.sdk()
    whole = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    s3.put_object(Bucket=BUCKET, Key=key, Body=whole.replace(b'"attempt":1', b'"attempt":2'))
    refused(ask, "receipt")
    s3.delete_object(Bucket=BUCKET, Key=key)
    refused(ask, "receipt")


def test_rotten_index_clears_nothing(world: World, server: S3Server, ask: Ask) -> None:
    """The index that spares reading is a hint: one that vouches for what was replaced does not help at a delete."""
    (index,) = [key for key in objects(world, server, ".json") if "/records/files-" in key]
    key = objects(world, server, "model.safetensors")[0]
    s3 = server.sdk()
    whole = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    before = s3.head_object(Bucket=BUCKET, Key=key)["ETag"]
    after = s3.put_object(Bucket=BUCKET, Key=key, Body=bytes([whole[0] ^ 1]) + whole[1:])["ETag"]
    data = s3.get_object(Bucket=BUCKET, Key=index)["Body"].read()
    forged = data.replace(before.strip('"').encode(), after.strip('"').encode())
    assert forged != data
    s3.put_object(Bucket=BUCKET, Key=index, Body=forged)
    assert not ask(True).allowed


def test_outage_in_between_is_unknown(server: S3Server, ask: Ask) -> None:
    """No answer is no yes, and no exception; when it answers again, it is cleared as before."""
    server.stop()
    try:
        s3_client.forget()
        assert not ask(True).allowed
    finally:
        server.start()
        s3_client.forget()
    assert ask(True).allowed
