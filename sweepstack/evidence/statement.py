"""A receipt as an in-toto Statement, in a DSSE envelope: what supply-chain tools read and verify.

Statement: https://in-toto.io/Statement/v1. Envelope:
https://github.com/secure-systems-lab/dsse. The keys are OpenSSH's or PEM; `cryptography` signs, nothing is signed here.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from sweepstack.core.extras import lacks
from sweepstack.core.records import Receipt
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.errors import SweepstackError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    Key = Ed25519PrivateKey | EllipticCurvePrivateKey

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://github.com/sweepstack/pulumi-sweepstack/receipt/v1"
"""The type of our predicate. A name for ever, wherever the project lies: those who verify compare it as text."""
PAYLOAD = "application/vnd.in-toto+json"
USED = "ed25519, or ECDSA on P-256"


class NeedsPassphrase(SweepstackError):
    """The key is locked with a passphrase."""


class NotAKey(SweepstackError):
    """The file holds no private key that can sign here. The message names the file and says what it is."""


def statement(receipt: Receipt) -> dict[str, Any]:
    """The Statement. Subjects: each file of each verified cell, as `CELL/PATH` with its SHA-256; a file that did not
    verify is no subject. Predicate: the whole receipt; the SHA-256 of its canonical JSON is the receipt's digest."""
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": f"{cell.name}/{file.path}", "digest": {"sha256": file.sha256}}
            for cell in receipt.cells
            if cell.state == "verified"
            for file in cell.files
        ],
        "predicateType": PREDICATE,
        "predicate": receipt.model_dump(mode="json", by_alias=True),
    }


def envelope(found: dict[str, Any], key: Key) -> dict[str, Any]:
    """The Statement in a DSSE envelope with one signature. `keyid` is the key's fingerprint, as `ssh-keygen -l` shows
    it; it is a hint, and proves nothing."""
    payload = canonical_json(found)
    signature = {"keyid": fingerprint(key), "sig": _base64(_signed(key, _authenticated(payload)))}
    return {"payload": _base64(payload), "payloadType": PAYLOAD, "signatures": [signature]}


def load_key(data: bytes, shown: str, passphrase: bytes | None = None) -> Key:
    """The private key in `data`, of OpenSSH or PEM. `shown`: its file, for messages.

    Raises NeedsPassphrase, NotAKey; NotAKey, too, where the extra `sign` is not installed.
    """
    if missing := lacks("sign"):
        raise NotAKey(f"nothing can be signed: {missing}")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    load = load_ssh_private_key if b"BEGIN OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key = load(data, passphrase)
    except TypeError as error:
        raise NeedsPassphrase(f"{shown} is locked with a passphrase") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        if passphrase is not None:
            raise NotAKey(f"{shown} does not open with this passphrase") from error
        raise NotAKey(f"{shown} holds no private key: name a file of {USED}, as ssh-keygen writes it") from error
    if isinstance(key, Ed25519PrivateKey) or (
        isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1)
    ):
        return key
    raise NotAKey(f"{shown} is no key of {USED}. Make one: ssh-keygen -t ed25519 -f KEY")


def fingerprint(key: Key) -> str:
    """`SHA256:…` of the public key, as `ssh-keygen -l` shows it."""
    from hashlib import sha256

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return "SHA256:" + _base64(sha256(base64.b64decode(public.split()[1])).digest()).rstrip("=")


def _signed(key: Key, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256

    return key.sign(data) if isinstance(key, Ed25519PrivateKey) else key.sign(data, ECDSA(SHA256()))


def _authenticated(payload: bytes) -> bytes:
    """The bytes under a DSSE signature: type and payload, each with its length (PAE)."""
    return b"DSSEv1 %d %b %d %b" % (len(PAYLOAD), PAYLOAD.encode("ascii"), len(payload), payload)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
