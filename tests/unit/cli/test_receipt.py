"""`sweepctl show`: what it shows, and the export that tools by other hands read and verify."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2  # type: ignore[import-untyped]
from in_toto_attestation.v1.statement import Statement  # type: ignore[import-untyped]
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

from sweepstack.cli.commands.approve.sign import SIGNING_KEY
from sweepstack.evidence.statement import PAYLOAD, PREDICATE, NeedsPassphrase, NotAKey, load_key
from sweepstack.onbox.common.canonical import digest_of, file_sha256
from tests.unit.cli.support import World


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A person's key, as ssh-keygen makes it."""
    return made(tmp_path / "key", "-t", "ed25519")


def made(path: Path, *options: str, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", *options, "-N", passphrase, "-C", "", "-f", str(path)], check=True, timeout=300)
    return path


def shown_fingerprint(key: Path) -> str:
    done = subprocess.run(
        ["ssh-keygen", "-l", "-f", f"{key}.pub"], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout.split()[1]


def public(key: Path) -> SSlibKey:
    """The public half, as the other tool takes it."""
    return SSlibKey.from_crypto(load_ssh_public_key(Path(f"{key}.pub").read_bytes()), keyid=shown_fingerprint(key))


def parsed(payload: bytes) -> Statement:
    """The Statement by in-toto's own bindings, validated by them."""
    found = Statement.copy_from_pb(json_format.Parse(payload, statement_pb2.Statement()))
    found.validate()
    return found


def exported(world: World, *options: str) -> dict[str, Any]:
    found = world.run("show", "-o", "-", *options)
    assert found.code == 0, found.err
    document: dict[str, Any] = json.loads(found.out)
    return document


def test_another_tool_verifies_the_envelope_and_reads_the_statement(world: World, tmp_path: Path, key: Path) -> None:
    *_, digest = world.verified()
    file = tmp_path / "receipt.json"
    found = world.run("show", "-o", str(file), "--sign", f"{SIGNING_KEY}={key}", "--json")
    assert found.code == 0, found.err
    assert found.json["signed_by"] == shown_fingerprint(key)

    envelope = Envelope.from_dict(json.loads(file.read_text()))
    assert list(envelope.verify([public(key)], 1)) == [shown_fingerprint(key)]
    assert envelope.payload_type == PAYLOAD == "application/vnd.in-toto+json"

    statement = parsed(envelope.payload)
    assert statement.pb.predicate_type == PREDICATE
    copies = world.evidence / "cells"
    assert {subject.name: subject.digest["sha256"] for subject in statement.pb.subject} == {
        f"{cell.name}/{path.relative_to(cell)}": file_sha256(path)
        for cell in copies.iterdir()
        for path in cell.rglob("*")
        if path.is_file() and path.name in ("metrics.json", "log.txt")
    }
    assert found.json["subjects"] == len(statement.pb.subject) > 0
    assert digest_of(json.loads(envelope.payload)["predicate"]) == digest == found.json["receipt"]


def test_what_was_edited_or_signed_by_another_key_does_not_verify(world: World, key: Path, tmp_path: Path) -> None:
    world.verified()
    document = exported(world, "--sign", f"{SIGNING_KEY}={key}")
    payload = json.loads(base64.b64decode(document["payload"]))
    payload["subject"][0]["digest"]["sha256"] = "0" * 64
    edited = {"payload": base64.b64encode(json.dumps(payload).encode()).decode()}
    other = made(tmp_path / "other", "-t", "ed25519")
    stranger = SSlibKey.from_crypto(load_ssh_public_key(Path(f"{other}.pub").read_bytes()), shown_fingerprint(key))
    for change, signer in ((edited, public(key)), ({"payloadType": "text/plain"}, public(key)), ({}, stranger)):
        envelope = Envelope.from_dict(json.loads(json.dumps(document | change)))
        with pytest.raises(VerificationError):
            envelope.verify([signer], 1)


def test_a_file_that_did_not_verify_is_no_subject(world: World) -> None:
    world.verified()
    (world.evidence / "cells" / "lr0.1" / "metrics.json").write_text('{"loss": 7.5}')
    world.run("verify")
    names = [subject["name"] for subject in exported(world)["subject"]]
    assert names
    assert not any(name.startswith("lr0.1/") for name in names)


@pytest.mark.parametrize(
    ("options", "passphrase", "kind", "words"),
    [
        (("-t", "rsa", "-b", "2048"), "", NotAKey, "is no key of ed25519, or ECDSA on P-256"),
        (("-t", "ecdsa", "-b", "384"), "", NotAKey, "is no key of ed25519, or ECDSA on P-256"),
        (("-t", "ed25519"), "a secret", NeedsPassphrase, "locked with a passphrase"),
        (("-t", "ecdsa", "-m", "PEM"), "a secret", NeedsPassphrase, "locked with a passphrase"),
    ],
)
def test_a_key_that_can_not_sign(
    tmp_path: Path, options: tuple[str, ...], passphrase: str, kind: type[Exception], words: str
) -> None:
    data = made(tmp_path / "key", *options, passphrase=passphrase).read_bytes()
    with pytest.raises(kind, match=words):
        load_key(data, "key")
    if passphrase:
        load_key(data, "key", passphrase.encode())
        with pytest.raises(NotAKey, match="does not open"):
            load_key(data, "key", b"another")


def test_without_a_good_key_nothing_is_exported(world: World, tmp_path: Path) -> None:
    world.verified()
    (tmp_path / "nothing").write_text("nothing")
    locked = made(tmp_path / "locked", "-t", "ed25519", passphrase="a secret")
    for file, words in (
        (tmp_path / "nothing", "holds no private key"),
        (tmp_path / "not-there", "can't be read"),
        (locked, "no terminal to ask at"),
    ):
        found = world.run("show", "-o", str(tmp_path / "out.json"), "--sign", f"{SIGNING_KEY}={file}")
        assert found.code == 1
        assert words in found.err
    assert not (tmp_path / "out.json").exists()


def test_a_pem_key_of_another_tool(world: World, tmp_path: Path) -> None:
    """openssl makes the key, and openssl verifies the signature over the bytes that DSSE names."""
    world.verified()
    pem, other = tmp_path / "key.pem", tmp_path / "public.pem"
    openssl = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(pem)]
    subprocess.run(openssl, check=True, capture_output=True, timeout=300)
    subprocess.run(["openssl", "pkey", "-in", str(pem), "-pubout", "-out", str(other)], check=True, timeout=300)
    document = exported(world, "--sign", f"{SIGNING_KEY}={pem}")
    payload = base64.b64decode(document["payload"])
    signed, signature = tmp_path / "signed", tmp_path / "signature"
    signed.write_bytes(b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(payload), payload))
    signature.write_bytes(base64.b64decode(document["signatures"][0]["sig"]))
    verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(other), "-rawin"]
    verify += ["-in", str(signed), "-sigfile", str(signature)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=300)
    assert "Signature Verified Successfully" in done.stdout
