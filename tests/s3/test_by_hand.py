"""A box that a person runs, and whose results come back to a bucket: real server, real runner, rclone as the way."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweepstack.evidence.pull import BoxSource, pull_all
from sweepstack.extensions.by_hand import bucket
from sweepstack.extensions.by_hand.channel import BucketChannel
from sweepstack.extensions.by_hand.platform import connect_to
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.errors import ConfigError, Unreachable
from sweepstack.onbox.host.platform import Phase
from sweepstack.platforms.common import s3_client
from tests.extensions.by_hand.test_manual_sessions import HandSite
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.launch.support import IDENTITY

SEALED = f"{box_layout.DURABLE}/sealed"


class BucketSite(HandSite):
    """A box that comes back to a bucket."""

    def __init__(self, folder: Path, uri: str, server: S3Server) -> None:
        self.uri, self.server = uri, server
        super().__init__(folder)

    @property
    def returns(self) -> str:
        return self.uri

    @property
    def prefix(self) -> str:
        return self.uri.removeprefix(f"s3://{BUCKET}/")

    def there(self) -> list[str]:
        found = self.server.sdk().list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/").get("Contents", [])
        return [str(one["Key"]).removeprefix(f"{self.prefix}/") for one in found]

    def put(self, key: str, data: bytes) -> None:
        self.server.sdk().put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=data)

    def take(self, key: str) -> bytes:
        body: bytes = self.server.sdk().get_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")["Body"].read()
        return body

    def drop(self, key: str) -> None:
        self.server.sdk().delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")

    def bring_bundle(self) -> None:
        """The person takes it out of the bucket."""
        self.bundle.parent.mkdir(exist_ok=True)
        self.bundle.write_bytes(self.take(self.bundle.name))

    def bring_back(self, name: str = "") -> Path:
        """As a person would keep a folder in step with a bucket."""
        remote = f":s3,provider=Other,env_auth=true,endpoint='{self.server.url}':{BUCKET}/{self.prefix}"
        words = ["rclone", "copy", "--config", os.devnull, str(self.carried), f"{remote}/{name or self.native_id}"]
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        return self.carried


@pytest.fixture
def site(tmp_path: Path, uri: str, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketSite]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(bucket, "FRESH_SECONDS", 0.0)  # these tests change the bucket between two calls
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = BucketSite(tmp_path, uri, server)
    yield found
    processes.end_box(found.native_id, grace=0)


@pytest.fixture
def back(site: BucketSite) -> BucketSite:
    """Two cells were run far away, and came back."""
    site.up("a", "b")
    site.bring_bundle()
    site.session()
    site.bring_back()
    return site


def pulled(site: BucketSite) -> dict[str, tuple[str, tuple[str, ...]]]:
    source = BoxSource("box-0", 1, site.channel)
    (found,) = pull_all([source], IDENTITY, site.store, lambda *_: None)
    return {result.cell: (result.state, result.reasons) for result in found.results}


def test_a_bundle_goes_out_and_its_cells_are_pulled(site: BucketSite) -> None:
    said = site.up("a")
    assert said.by_hand.startswith(f"to run it by hand: {site.uri}/{site.bundle.name}. Bring it to the machine and")
    assert f"nothing has come back yet; its bundle is {site.uri}/box-0." in site.hand.channel(*who(site)).note
    written = site.server.sdk().head_object(Bucket=BUCKET, Key=f"{site.prefix}/{site.bundle.name}")["LastModified"]
    site.up("a")
    again = site.server.sdk().head_object(Bucket=BUCKET, Key=f"{site.prefix}/{site.bundle.name}")["LastModified"]
    assert written == again, "the same bundle is not written twice"
    site.bring_bundle()
    site.session()
    assert site.states() == {}, "nothing is back yet"
    site.bring_back()
    assert site.states() == {"a": "sealed"}
    assert {cell: state for cell, (state, _) in pulled(site).items()} == {"a": "pulled"}


def who(site: BucketSite) -> tuple[str, str]:
    return site.native_id, site.record.account


def test_the_tier_reads_as_that_of_a_folder(back: BucketSite, tmp_path: Path) -> None:
    """Every answer is that of a copy on this computer; and a look brings marks, journal and logs alone."""
    far = back.channel
    assert isinstance(far, BucketChannel)
    here = [path.name for path in far.bucket.mirror.rglob("*") if path.is_file()]
    assert ("journal.jsonl" in here, "manifest.json" in here) == (True, False)
    HandSite.bring_back(back)
    there = connect_to(str(back.returned)).channel(*who(back))
    listed = there.walk([box_layout.DURABLE])
    # In any order: half of a seal that was carried, `a.partial-1`, stands before `a/` in a bucket and behind it here.
    assert sorted(one[:2] for one in far.walk([box_layout.DURABLE]).files) == sorted(one[:2] for one in listed.files)
    skip = [f"{box_layout.DURABLE}/*/checkpoints*"]
    without = [{one[0] for one in way.walk([box_layout.DURABLE], skip=skip).files} for way in (far, there)]
    assert without[0] == without[1]
    assert "more than 1 files" in far.walk([box_layout.DURABLE], limit=1).problem
    folders = {path.rpartition("/")[0] for path, _, _ in listed.files}
    assert [far.listdir(one) for one in sorted(folders)] == [there.listdir(one) for one in sorted(folders)]
    assert far.listdir(box_layout.DURABLE) == there.listdir(box_layout.DURABLE)
    for path, size, _ in listed.files:
        assert far.size(path) == size
        assert far.read(path) == there.read(path)
        assert far.read(path, offset=2, limit=3) == there.read(path, offset=2, limit=3)
    paths = [path for path, _, _ in listed.files]
    assert far.tails(paths, 5) == there.tails(paths, 5)
    for absent in (f"{SEALED}/none", f"{paths[0]}/none"):
        assert far.size(absent) is None
        with pytest.raises(FileNotFoundError):
            far.read(absent)
    with pytest.raises(NotADirectoryError):
        far.listdir(paths[0])
    part = tmp_path / "part"
    part.write_bytes(there.read(paths[0])[:3])
    told: list[int] = []
    far.fetch(paths[0], part, told.append)
    assert (part.read_bytes(), told[0], sum(told)) == (there.read(paths[0]), 3, far.size(paths[0]))


def of_another_box(site: BucketSite) -> str:
    mark = f"{site.native_id}/sweepstack-box.json"
    site.put(mark, site.take(mark).replace(site.native_id.encode(), b"manual-zzzzzzzzzz-aaaaaaaaaa"))
    return "Put it back: it is not lost"


def journal_changed(site: BucketSite) -> str:
    key = f"{site.native_id}/{box_layout.JOURNAL}"
    site.put(key, site.take(key).replace(b'"cell":"b"', b'"cell":"c"'))
    return "its journal was changed after it was written"


def taken_away(site: BucketSite) -> str:
    for key in site.there():
        site.drop(key)
    return "Put it back: it is not lost"


def unknown(site: BucketSite, words: str) -> None:
    """The box can't be read, its record says why, and it is not called gone."""
    with pytest.raises(Unreachable, match=words) as told:
        site.channel  # noqa: B018 - opening it is the look
    assert "/returned/" not in str(told.value), "the bucket is named, and not its mirror"
    record = site.hand.get(*who(site))
    assert (record.phase, words in record.note) == (Phase.RUNNING, True)


def test_what_can_not_be_asked_or_was_taken_away_is_unknown(back: BucketSite) -> None:
    assert back.states() == {"a": "sealed", "b": "sealed"}
    back.server.stop()
    try:
        unknown(back, "does not answer")
    finally:
        back.server.start()
        s3_client.forget()
    assert back.states() == {"a": "sealed", "b": "sealed"}
    unknown(back, taken_away(back))


@pytest.mark.proof  # the same rules for a folder: tests/extensions/by_hand/test_manual_sessions.py
@pytest.mark.parametrize("breaks", [of_another_box, journal_changed])
def test_what_can_not_count_is_unknown_with_its_reason(back: BucketSite, breaks: Callable[[BucketSite], str]) -> None:
    assert back.states() == {"a": "sealed", "b": "sealed"}
    unknown(back, breaks(back))


def test_a_file_that_lacks_or_changed_is_no_copy(back: BucketSite) -> None:
    sealed = sorted(key for key in back.there() if key.endswith("/a/manifest.json"))
    results = [key for key in back.there() if key.startswith(sealed[0].rpartition("/")[0]) and key != sealed[0]]
    back.put(results[0], b"other bytes")
    channel = back.channel
    back.drop(results[-1].replace("/a/", "/b/"))
    found = pulled(back)
    assert {state for state, _ in found.values()} & {"pulled", "current"} == set(), found
    back.put(results[0], b"once more")  # after the look of `channel`
    path = f"{box_layout.DURABLE}{results[0].partition(box_layout.DURABLE)[2]}"
    with pytest.raises(Unreachable, match="is not what it was"):
        channel.read(path)


@pytest.mark.parametrize("key", ["", "../x", "a/../../x", "a//b", "./x", "/etc/x", "a\0b"])
def test_a_key_that_is_no_path_below_the_prefix_is_no_session_s(key: str) -> None:
    """On a server that has such keys they would lead out of the mirror."""
    assert not bucket.is_plain(key)
    assert bucket.is_plain("manual-a/data/sweep/journal.jsonl")


@pytest.mark.parametrize("address", ["s3://", "s3://lab", "s3://lab/../x", "s3://key@lab/x"])
def test_what_is_no_folder_of_a_bucket(address: str) -> None:
    with pytest.raises(ConfigError):
        connect_to(address)
