"""Signs an approval with an SSH key, once the person has said yes (docs/teardown.md)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from pydantic import TypeAdapter, ValidationError

from sweepstack.channel.ssh.keys import KEY_VARIABLE
from sweepstack.cli.output import No, Unsure
from sweepstack.core.records import Approval
from sweepstack.core.signature import Principal, Signature, SweepName
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.teardown.signatures import NAMESPACE, document, ssh_keygen, verified_signers

GIT_SECONDS = 30.0


@dataclass(frozen=True)
class Signer:
    """Who signs, and the key: a file, or a public key whose private half an agent holds. `options`: as they were typed,
    for a command that is to be typed again."""

    name: str
    key: str
    options: str = "--sign"

    def sign(self, approval: Approval, sweep: SweepName) -> Approval:
        """The approval with one more signature, for `sweep`. The key may ask for its passphrase at the terminal. Writes
        nothing. Raises No if this name or key has signed already, or if the key can't be used."""
        refused = "not signed; nothing was written: "
        if any(signature.principal == self.name for signature in approval.signatures):
            raise No(f"{refused}{self.name} has signed this approval already. A second signature is another person's")
        try:
            text = ssh_keygen().sign(document(approval, self.name, sweep), self.key, NAMESPACE)
        except SweepstackError as error:
            raise No(f"nothing was written: {error}") from error
        one = Signature(principal=self.name, sweep=sweep, signature=text)
        signed = approval.model_copy(update={"signatures": (*approval.signatures, one)})
        if problems := verified_signers(signed, sweep, None, at=datetime.now(UTC)).problems:
            raise No(refused + "; ".join(problems))
        return signed


def signer_of(root: Path, how: str, key: str | None, name: str | None) -> Signer:
    """Who signs, by the options, else by git's settings for the project at `root`. `how`: `--sign`; "" of
    a verb that signs. Raises Unsure, with what to set, before anything is asked."""
    typed = [
        *([how] if how else []),
        *([f"--signing-key {quote(key)}"] if key else []),
        *([f"--signer {quote(name)}"] if name else []),
    ]
    before = f"{how}: " if how else ""
    name = name or _git(root, "user.email")
    if not name:
        raise Unsure(f"{before}who signs is not known. Add --signer NAME, or set it: git config user.email NAME")
    try:
        TypeAdapter(Principal).validate_python(name)
    except ValidationError:
        raise Unsure(
            f"{before}{name!r} can't stand in a list of signers. Add --signer NAME, an address say: letters, digits "
            "and . _ + @ % -"
        ) from None
    key = key or default_key(root, how)
    if "\n" in key or "PRIVATE KEY" in key:
        raise Unsure(
            f"{before}what is set as the key to sign with is a private key itself; it is to be the path of its file"
        )
    return Signer(name, key, " ".join(typed))


def default_key(root: Path, how: str) -> str:
    """The key that git signs with, if that is an SSH key; else the one that boxes are reached with."""
    found = _git(root, "user.signingkey") if _git(root, "gpg.format") == "ssh" else ""
    found = found or os.environ.get(KEY_VARIABLE, "")
    if found:
        return found
    before = f"{how}: " if how else ""
    raise Unsure(
        f"{before}there is no key to sign with. Add --signing-key PATH, or set one: git config gpg.format ssh && "
        f"git config user.signingkey PATH. Else ${KEY_VARIABLE} is taken, and it is not set"
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
