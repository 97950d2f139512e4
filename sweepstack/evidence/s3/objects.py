"""Files as objects: uploads appear whole and checked, and go on after a cut; downloads; proof.

An upload needs no other key to be made under first: nothing of it can be seen before the request that completes it, and
that request is refused by the server unless the bytes have the SHA-256 that was sent along and the key is still free.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sweepstack.evidence.object_store import changed
from sweepstack.evidence.s3.object_store import S3Store, sha256_b64
from sweepstack.onbox.common import holes
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError
from sweepstack.platforms.common.s3_client import NotThere, Precondition, asking

MOST_PARTS = 10_000
CHUNK = 4 << 20

Say = Callable[[int], None]
"""Gets the bytes that went over the line since the last call."""


@dataclass(frozen=True)
class Head:
    """What the server says of an object. `checksum`: the SHA-256 that it checked when the bytes came, base64; with
    `-<n>` it is one over the parts' digests; empty when it has none."""

    size: int
    etag: str
    version: str
    checksum: str

    @property
    def stamp(self) -> tuple[str, str, str]:
        """Changes when the object is written again."""
        return self.etag, self.version, self.checksum

    def is_content(self, sha256: str) -> bool | None:
        """Is it the content with this SHA-256 (hex)? None where the server's checksum can't tell."""
        if not self.checksum or "-" in self.checksum:
            return None
        return self.checksum == _base64(sha256)


def head(objects: S3Store, key: str) -> Head | None:
    """What is under a key; None when that is proved to be nothing (a bare 404 may also be the bucket's)."""
    try:
        with asking(objects.shown(key)) as s3:
            answer = s3.head_object(**objects.where(key), ChecksumMode="ENABLED")
    except EvidenceError as error:
        if not _bare_404(error):
            raise
        return head(objects, key) if objects.size(key) is not None else None
    return _head(answer)


def fits(objects: S3Store, path: Path, found: Head, sha256: str) -> bool:
    """Does the object have the bytes of this local file, which has that SHA-256, by the server's checksum?"""
    known = found.is_content(sha256)
    if known is not None:
        return known
    count = found.checksum.rpartition("-")[2]
    step = part_size(objects, found.size)
    if not count.isdecimal() or int(count) != math.ceil(found.size / step):
        return False
    return found.checksum == _composite(_digests(path, step)[1])


def part_size(objects: S3Store, size: int) -> int:
    """How large the parts of a file are, by its size alone: who goes on with an upload cuts it as before."""
    return max(objects.part_bytes, math.ceil(size / MOST_PARTS / (1 << 20)) << 20)


def upload(objects: S3Store, key: str, path: Path, sha256: str, say: Say | None = None) -> Head:
    """Puts a local file of that SHA-256 under a free key, and looks at it after. Resumable; blocks.

    The file is hashed once, before; that these very bytes came is the server's to check, by the checksums sent along.
    Raises EvidenceChanged when something else is under the key, EvidenceError when the file is not what it was.
    """
    size = path.stat().st_size
    parts: list[bytes] = []
    try:
        if size > objects.part_bytes:
            whole, parts = _digests(path, part_size(objects, size))
            _require(path, whole, sha256, objects.shown(key))
            _in_parts(objects, key, path, size, parts, say)
        else:
            data = path.read_bytes()
            _require(path, hashlib.sha256(data).hexdigest(), sha256, objects.shown(key))
            with asking(objects.shown(key)) as s3:
                s3.put_object(**objects.where(key), Body=data, ChecksumSHA256=_base64(sha256), IfNoneMatch="*")
            objects.traffic.add(up=size)
            if say:
                say(size)
    except Precondition:
        pass  # something is there by now; whether it is this is seen below
    found = head(objects, key)
    if (
        found is None
        or found.size != size
        or not (found.checksum == _composite(parts) or fits(objects, path, found, sha256))
    ):
        raise changed(objects.shown(key))
    return found


def _require(path: Path, found: str, wanted: str, shown: str) -> None:
    if found != wanted:
        raise EvidenceError(f"{path} changed while it was copied to {shown}: run it again")


def download(objects: S3Store, key: str, found: Head, target: Path, say: Say | None = None) -> None:
    """Brings an object to `target`, by way of a file beside it with which a later call goes on. Blocks.

    Raises EvidenceChanged when it is not `found` any more.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(repr(found).encode()).hexdigest()[:12]
    partial = target.with_name(f".{target.name[:200]}.{mark}.part")
    done = partial.stat().st_size if partial.exists() else 0
    if done > found.size:
        partial.unlink()
        done = 0
    try:
        while done < found.size or not partial.exists():
            with asking(objects.shown(key)) as s3, partial.open("ab") as handle:
                span = {"Range": f"bytes={done}-"} if done else {}
                body = s3.get_object(**objects.where(key), IfMatch=found.etag, **span)["Body"]
                before = done
                for chunk in _chunks(body):
                    holes.write(handle, chunk)
                    done += len(chunk)
                    objects.traffic.add(down=len(chunk))
                    if say:
                        say(len(chunk))
                if done == before < found.size:
                    raise EvidenceError(f"{objects.shown(key)}: the server sent nothing; run the command again")
    except (NotThere, Precondition) as error:
        raise EvidenceChanged(f"{objects.shown(key)} changed while it was read: run the command again") from error
    os.replace(partial, target)


def digest(objects: S3Store, key: str, found: Head) -> str:
    """The SHA-256 (hex) of an object, by reading all of it. Raises EvidenceChanged."""
    hasher = hashlib.sha256()
    try:
        with asking(objects.shown(key)) as s3:
            body = s3.get_object(**objects.where(key), IfMatch=found.etag)["Body"]
            for chunk in _chunks(body):
                hasher.update(chunk)
                objects.traffic.add(down=len(chunk))
    except (NotThere, Precondition) as error:
        raise EvidenceChanged(f"{objects.shown(key)} changed while it was read: run the command again") from error
    return hasher.hexdigest()


def _in_parts(objects: S3Store, key: str, path: Path, size: int, digests: list[bytes], say: Say | None) -> None:
    """`digests`: SHA-256 of the parts, as `part_size` cuts the file. Where the key is taken by now, nothing is put
    there: who calls looks at what it holds."""
    step = part_size(objects, size)
    upload_id, there = _begun(objects, key, digests)
    where = objects.where(key)
    parts: list[dict[str, Any]] = []
    with path.open("rb") as handle:
        for number, wanted in enumerate(digests, 1):
            checksum = base64.b64encode(wanted).decode()
            length = min(step, size - (number - 1) * step)
            etag = there.get(number)
            if etag is None:
                handle.seek((number - 1) * step)
                with asking(objects.shown(key)) as s3:
                    answer = s3.upload_part(
                        **where,
                        UploadId=upload_id,
                        PartNumber=number,
                        Body=handle.read(length),
                        ChecksumSHA256=checksum,
                    )
                etag = answer["ETag"]
                objects.traffic.add(up=length)
            if say:
                say(length)
            parts.append({"PartNumber": number, "ETag": etag, "ChecksumSHA256": checksum})
    try:
        with asking(objects.shown(key)) as s3:
            s3.complete_multipart_upload(**where, UploadId=upload_id, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
    except (NotThere, Precondition):
        with contextlib.suppress(EvidenceError), asking(objects.shown(key)) as s3:
            s3.abort_multipart_upload(**where, UploadId=upload_id)


def _begun(objects: S3Store, key: str, digests: list[bytes]) -> tuple[str, dict[int, str]]:
    """The upload of this very content that was cut off before, with its parts; else a new one."""
    where = objects.where(key)
    wanted = {number: base64.b64encode(digest).decode() for number, digest in enumerate(digests, 1)}
    with asking(objects.shown(key)) as s3:
        open_ones = s3.list_multipart_uploads(Bucket=where["Bucket"], Prefix=where["Key"]).get("Uploads", ())
    for one in open_ones:
        if one["Key"] != where["Key"]:
            continue
        there: dict[int, str] = {}
        try:
            with asking(objects.shown(key)) as s3:
                pages = s3.get_paginator("list_parts").paginate(**where, UploadId=one["UploadId"])
                parts = [part for page in pages for part in page.get("Parts", ())]
        except EvidenceError:
            continue
        if all(wanted.get(part["PartNumber"]) == part.get("ChecksumSHA256") for part in parts):
            there = {part["PartNumber"]: part["ETag"] for part in parts}
            return str(one["UploadId"]), there
    with asking(objects.shown(key)) as s3:
        return str(s3.create_multipart_upload(**where, ChecksumAlgorithm="SHA256")["UploadId"]), {}


def _chunks(body: Any) -> Iterator[bytes]:
    while chunk := body.read(CHUNK):
        yield chunk


def _digests(path: Path, step: int) -> tuple[str, list[bytes]]:
    """The SHA-256 of a file (hex) and those of its parts, from one reading."""
    whole, parts = hashlib.sha256(), []
    with path.open("rb") as handle:
        while data := handle.read(step):
            whole.update(data)
            parts.append(hashlib.sha256(data).digest())
    return whole.hexdigest(), parts


def _base64(sha256: str) -> str:
    """A SHA-256 in hex as S3 writes it."""
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _composite(digests: list[bytes]) -> str:
    return f"{sha256_b64(b''.join(digests))}-{len(digests)}"


def _head(answer: dict[str, Any]) -> Head:
    return Head(
        size=int(answer["ContentLength"]),
        etag=str(answer["ETag"]),
        version=str(answer.get("VersionId") or ""),
        checksum=str(answer.get("ChecksumSHA256") or ""),
    )


def _bare_404(error: EvidenceError) -> bool:
    said = getattr(error.__cause__, "response", None)
    return isinstance(said, dict) and said["ResponseMetadata"].get("HTTPStatusCode") == 404
