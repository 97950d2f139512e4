"""`s3://bucket/prefix`: read, and refused in one sentence where it is none. No network, no SDK."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError

SCHEME = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PART = re.compile(r"[A-Za-z0-9!_*'()+=@,.-]{1,200}")


@dataclass(frozen=True)
class S3Address:
    """A folder of a bucket. The server is not part of it: AWS_ENDPOINT_URL, or the AWS config file, names that."""

    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The address as it stands in the state."""
        return f"{SCHEME}{self.bucket}/{self.prefix}"

    @classmethod
    def parse(cls, text: str, shown: str = "") -> S3Address:
        """Raises EvidenceError, which says what is wrong with it and what a good one looks like. `shown`: how that
        quotes the text, by default as it is."""
        shown = shown or text
        if not text.startswith(SCHEME):
            raise EvidenceError(f"{shown.rpartition('@')[2]} is neither a folder nor s3://bucket/prefix")
        bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
        prefix = prefix.rstrip("/")
        if "@" in bucket or ":" in bucket:
            raise EvidenceError(
                f"{SCHEME}… names a bucket, without keys or a server: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or "
                f"AWS_PROFILE) hold the keys, AWS_ENDPOINT_URL the server"
            )
        if not _BUCKET.fullmatch(bucket) or ".." in bucket:
            raise EvidenceError(f"{shown} names no bucket; write s3://bucket/prefix")
        if not prefix:
            raise EvidenceError(f"{shown} names no folder in the bucket; write {SCHEME}{bucket}/<prefix>, one a sweep")
        if any(not _PART.fullmatch(part) or part in (".", "..") for part in prefix.split("/")):
            raise EvidenceError(f"{shown}: the prefix may hold letters, digits and !_*'()+=@,.- between single slashes")
        return cls(bucket, prefix)


def evidence_uri(project_root: Path, pull_to: str) -> str | None:
    """The address of the evidence that `pull_to` names in a stack file, seen from this host; None where it is none."""
    if pull_to.startswith(SCHEME):
        try:
            return S3Address.parse(pull_to).uri
        except EvidenceError:
            return None
    if not pull_to or "://" in pull_to:
        return None
    return f"file://{socket.gethostname()}{(project_root / Path(pull_to).expanduser()).resolve()}"
