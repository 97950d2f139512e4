"""Signs an approval with an SSH key, once the person has said yes (docs/teardown.md)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sweepstack.channel.ssh.keys import KEY_VARIABLE
from sweepstack.core.records import Approval
from sweepstack.core.signature import Principal, Signature, SweepName
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, SweepstackError, Unsure
from sweepstack.teardown.signatures import NAMESPACE, signed_document, ssh_keygen, verified_signers

GIT_SECONDS = 30.0
SIGNER, SIGNING_KEY = "SWEEPSTACK_SIGNER", "SWEEPSTACK_SIGNING_KEY"
"""Who signs and the key, where they are not those of git."""


@dataclass(frozen=True)
class Signer:
    """Who signs, and the key: a file, or a public key whose private half an agent holds."""

    name: str
    key: str

    def sign(self, approval: Approval, sweep: SweepName) -> Approval:
        """The approval with one more signature, for `sweep`. The key may ask for its passphrase at the terminal. Writes
        nothing. Raises No if this name or key has signed already, or if the key can't be used."""
        refused = "not signed; nothing was written: "
        if any(signature.principal == self.name for signature in approval.signatures):
            raise No(f"{refused}{self.name} has signed this approval already. A second signature is another person's")
        try:
            text = ssh_keygen().sign(signed_document(approval, self.name, sweep), self.key, NAMESPACE)
        except SweepstackError as error:
            raise No(f"nothing was written: {error}") from error
        one = Signature(principal=self.name, sweep=sweep, signature=text)
        signed = approval.model_copy(update={"signatures": (*approval.signatures, one)})
        if problems := verified_signers(signed, sweep, None, at=datetime.now(UTC)).problems:
            raise No(refused + "; ".join(problems))
        return signed


def signer_of(root: Path) -> Signer:
    """Who signs, by the environment, else by git's settings for the project at `root`. Raises Unsure, with what to set,
    before anything is asked."""
    name = os.environ.get(SIGNER, "") or _git(root, "user.email")
    if not name:
        raise Unsure(f"who signs is not known. Set it: git config user.email NAME, or {SIGNER}=NAME")
    try:
        TypeAdapter(Principal).validate_python(name)
    except ValidationError:
        raise Unsure(
            f"{name!r} can't stand in a list of signers. Set {SIGNER}=NAME, an address say: letters, digits and "
            ". _ + @ % -"
        ) from None
    key = default_key(root)
    if "\n" in key or "PRIVATE KEY" in key:
        raise Unsure("what is set as the key to sign with is a private key itself; it is to be the path of its file")
    return Signer(name, key)


def default_key(root: Path) -> str:
    """The key that the environment names; else the one that git signs with, if that is an SSH key; else the one that
    boxes are reached with. Raises Unsure where there is none."""
    found = os.environ.get(SIGNING_KEY, "")
    if not found and _git(root, "gpg.format") == "ssh":
        found = _git(root, "user.signingkey")
    found = found or os.environ.get(KEY_VARIABLE, "")
    if found:
        return found
    raise Unsure(
        "there is no key to sign with. Set one: git config gpg.format ssh && git config user.signingkey PATH, or "
        f"{SIGNING_KEY}=PATH. Else ${KEY_VARIABLE} is taken, and it is not set"
    )


def _git(root: Path, key: str) -> str:
    """One of git's settings; "" where it has none, or where there is no git."""
    try:
        command: Sequence[str] = ("git", "-C", str(root), "config", "--get", key)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
