"""A bucket's prefix for evidence: small values by key, written whole, conditionally if asked.

The credential of one box may write below its own folder of the bucket, and do nothing else. Records and receipts lie
elsewhere, so that nothing a box does can make itself look verified. On a platform whose boxes are folders of this
machine no box gets a credential.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from sweepstack.core.bucket_address import S3Address
from sweepstack.evidence.object_store import ABSENT, Held, changed
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError
from sweepstack.platforms.common.s3_client import NotThere, Precondition, asking

PART_BYTES = 64 << 20
"""A larger file goes up in parts of this size, and after a cut only with those that are missing."""

REMOVED = b"null\n"
"""What a key holds that was taken away under a condition. S3 has conditional deletes, but not every server: MinIO
deletes whatever `If-Match` says. All have conditional writes, and no record reads as this."""

NO_TAG = f'"{"0" * 32}"'
"""An ETag that no object has."""
BOXES = "boxes"


@dataclass
class Traffic:
    """Bytes that went over the line, and bytes that were proved to be the same without that."""

    up: int = 0
    down: int = 0
    unchanged: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, *, up: int = 0, down: int = 0, unchanged: int = 0) -> None:
        """Counts; from any thread."""
        with self._lock:
            self.up += up
            self.down += down
            self.unchanged += unchanged

    @property
    def moved(self) -> int:
        """Bytes over the line, both ways."""
        return self.up + self.down


@dataclass(frozen=True)
class Item:
    """An object as a listing names it."""

    key: str
    size: int
    etag: str


class S3Store:
    """Tags are ETags. A reader sees the old content or the new: that is what S3 promises for a key."""

    def __init__(self, address: S3Address) -> None:
        self.address = address
        self.uri = address.uri
        self.traffic = Traffic()
        self.part_bytes = PART_BYTES

    def shown(self, key: str = "") -> str:
        return f"{self.uri}/{key}" if key else self.uri

    def missing(self) -> str:
        return "holds no {}: deleted, or another prefix, bucket or server (AWS_ENDPOINT_URL)? Put it right"

    def where(self, key: str) -> dict[str, str]:
        """The words by which the SDK names an object."""
        return {"Bucket": self.address.bucket, "Key": f"{self.address.prefix}/{key}"}

    def read(self, key: str) -> Held | None:
        held = self._object(key)
        return None if held is None or held.data == REMOVED else held

    def _object(self, key: str) -> Held | None:
        try:
            with asking(self.shown(key)) as s3:
                answer = s3.get_object(**self.where(key), ChecksumMode="ENABLED")
                data = answer["Body"].read()
        except NotThere:
            return None
        self.traffic.add(down=len(data))
        return Held(data, answer["ETag"])

    def write(self, key: str, data: bytes, *, over: str | None = None) -> str:
        only: dict[str, str] = {}
        if over is not None:
            only = {"IfNoneMatch": "*"} if over == ABSENT else {"IfMatch": over}
        try:
            with asking(self.shown(key)) as s3:
                answer = s3.put_object(**self.where(key), Body=data, ChecksumSHA256=sha256_b64(data), **only)
        except (NotThere, Precondition):
            held = self._object(key)
            if over == ABSENT and held is not None and held.data == REMOVED:
                return self.write(key, data, over=held.tag)
            if held is not None and held.data == data:  # our own write, whose answer was lost
                return held.tag
            raise changed(self.shown(key)) from None
        self.traffic.add(up=len(data))
        tag: str = answer["ETag"]
        return tag

    def remove(self, key: str, *, over: str | None = None) -> None:
        if over is None:
            with asking(self.shown(key)) as s3:
                s3.delete_object(**self.where(key))
            return
        try:
            if over == ABSENT and self.read(key) is not None:
                raise changed(self.shown(key))
            if over != ABSENT:
                self.write(key, REMOVED, over=over)
        except EvidenceChanged:
            if self.read(key) is not None:  # another process took it away: as was wanted
                raise

    def names(self, folder: str) -> list[str]:
        base = f"{self.address.prefix}/{folder}/"
        found: list[str] = []
        for page in self._pages(base, delimiter="/"):
            found += [item["Key"][len(base) :] for item in page.get("Contents", ())]
            found += [item["Prefix"][len(base) :].rstrip("/") for item in page.get("CommonPrefixes", ())]
        return sorted(name for name in found if name)

    def holds_any(self, folder: str) -> bool:
        with asking(self.shown(folder)) as s3:
            prefix = f"{self.address.prefix}/{folder}/"
            answer = s3.list_objects_v2(Bucket=self.address.bucket, Prefix=prefix, MaxKeys=1)
        return bool(answer.get("Contents"))

    def size(self, key: str) -> int | None:
        """As of a listing, whose answer proves that the bucket is there."""
        full = self.where(key)["Key"]
        with asking(self.shown(key)) as s3:
            answer = s3.list_objects_v2(Bucket=self.address.bucket, Prefix=full, MaxKeys=1)
        return next((int(item["Size"]) for item in answer.get("Contents", ()) if item["Key"] == full), None)

    def items(self, folder: str) -> list[Item]:
        """Every object below `folder`, at any depth, with keys relative to the prefix."""
        start = len(self.address.prefix) + 1
        return [
            Item(item["Key"][start:], int(item["Size"]), item["ETag"])
            for page in self._pages(f"{self.address.prefix}/{folder}/" if folder else f"{self.address.prefix}/")
            for item in page.get("Contents", ())
        ]

    def proves_conditions(self, key: str) -> None:
        """Raises EvidenceError where the server writes over a key that it was told to leave. `key` must be there; it
        keeps what it holds."""
        self._proves(key, "If-None-Match", {"IfNoneMatch": "*"})

    def proves_matching(self, key: str) -> None:
        """The same of a key whose tag is not the one that the server was told."""
        self._proves(key, "If-Match", {"IfMatch": NO_TAG})

    def _proves(self, key: str, header: str, condition: dict[str, str]) -> None:
        held = self._object(key)
        if held is None:
            raise EvidenceError(f"{self.shown(key)} is not there: whether the server keeps to conditions is not known")
        try:
            with asking(self.shown(key)) as s3:
                s3.put_object(**self.where(key), Body=held.data, ChecksumSHA256=sha256_b64(held.data), **condition)
        except Precondition:
            return
        raise EvidenceError(
            f"{self.uri}: this server ignores conditional writes ({header}), so two people could overwrite each "
            f"other's records. Use one that keeps to them (AWS, MinIO, R2, …), or a folder"
        )

    def _pages(self, prefix: str, **settings: str) -> Iterator[dict[str, Any]]:
        words = {"Delimiter": settings["delimiter"]} if "delimiter" in settings else {}
        token: dict[str, str] = {}
        while True:
            with asking(f"s3://{self.address.bucket}/{prefix}") as s3:
                page = s3.list_objects_v2(Bucket=self.address.bucket, Prefix=prefix, **words, **token)
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}


def sha256_b64(data: bytes) -> str:
    """The SHA-256 as S3 writes it."""
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def box_folder(native_id: str) -> str:
    """The one folder of a box, as a key. A native id's own special characters, wildcards among them, are quoted."""
    return f"{BOXES}/{quote(native_id, safe='')}"


def box_policy(address: S3Address, native_id: str) -> dict[str, Any]:
    """The policy document (AWS IAM, MinIO and others) for the credential of one box. Tested as the bucket's own policy,
    on VersityGW; as the session policy of `sts:AssumeRole` it is not."""
    bucket = f"arn:aws:s3:::{address.bucket}"
    folder = f"{address.prefix}/{box_folder(native_id)}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"],
                "Resource": [f"{bucket}/{folder}/*"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [bucket],
                "Condition": {"StringLike": {"s3:prefix": [f"{folder}/*"]}},
            },
        ],
    }
