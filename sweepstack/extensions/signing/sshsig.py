"""Signs and verifies with people's SSH keys, by `ssh-keygen -Y`: no cryptography of our own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError

SECONDS = 60.0
"""The longest that a check may take; it takes milliseconds."""
ASKING_SECONDS = 300.0
"""For so long a person may type a passphrase, or look for a hardware key and touch it."""
_MISSING = "there is no `ssh-keygen` here, and signatures are checked by it: apt-get install openssh-client"
_KEY = re.compile(r"\bkey (SHA256:[A-Za-z0-9+/]{43})$")


class BadSignature(SweepstackError):
    """It does not verify; the message says why, without a subject ("the text was edited after …")."""


@dataclass(frozen=True)
class _Ran:
    code: int
    out: str
    err: str


@lru_cache(maxsize=256)
def fingerprint(data: bytes, signature: str, namespace: str) -> str:
    """The key (`SHA256:…`) that signed `data`. It does not say whose key it is. Raises BadSignature; SweepstackError
    if ssh-keygen can't be run."""
    with tempfile.TemporaryDirectory() as folder:
        at = _written(folder, "signature", signature)
        return _good(_run(["-Y", "check-novalidate", "-n", namespace, "-s", at], data), namespace)


@lru_cache(maxsize=256)
def verify(data: bytes, signature: str, *, principal: str, namespace: str, allowed_signers: str, at: datetime) -> str:
    """The key (`SHA256:…`) by which `principal` signed `data`, if `allowed_signers` (the text of such a file) let that
    key sign for it at `at`, to the minute. Times without a zone in that text are UTC, on every machine.

    Raises BadSignature, SweepstackError.
    """
    with tempfile.TemporaryDirectory() as folder:
        signed = _written(folder, "signature", signature)
        listed = _written(folder, "allowed_signers", allowed_signers)
        when = f"{at.astimezone(UTC):%Y%m%d%H%M}"
        ran = _run(
            ["-Y", "verify", "-O", f"verify-time={when}", "-f", listed, "-I", principal, "-n", namespace, "-s", signed],
            data,
        )
        return _good(ran, namespace, principal)


def principals(data: bytes, signature: str, allowed_signers: str) -> list[str]:
    """For whom the key of the signature may sign, by `allowed_signers`: names or patterns; empty if it is not there."""
    with tempfile.TemporaryDirectory() as folder:
        signed = _written(folder, "signature", signature)
        listed = _written(folder, "allowed_signers", allowed_signers)
        ran = _run(["-Y", "find-principals", "-f", listed, "-s", signed], data)
    return ran.out.replace(",", "\n").split() if ran.code == 0 else []


def sign(data: bytes, key: str, namespace: str) -> str:
    """The armored signature of `data`. `key`: the file of a private key, or of a public one whose private half an agent
    holds, or that public key itself. A passphrase or a touch is asked for at the terminal. Raises NotAuthorized."""
    with tempfile.TemporaryDirectory() as folder:
        literal = key.removeprefix("key::")
        known = literal.startswith(("ssh-", "ecdsa-", "sk-"))
        file = _written(folder, "key.pub", literal + "\n") if known else str(Path(key).expanduser())
        if not known and not Path(file).is_file():
            raise NotAuthorized(f"there is no key {file} to sign with. Name one that is there, or make it: ssh-keygen")
        message = Path(folder, "message")
        message.write_bytes(data)
        person = sys.stdin.isatty() and sys.stderr.isatty()
        try:
            done = subprocess.run(
                ["ssh-keygen", "-q", "-Y", "sign", "-f", file, "-n", namespace, str(message)],
                stdin=None if person else subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if person else subprocess.PIPE,
                text=True,
                timeout=ASKING_SECONDS,
            )
        except FileNotFoundError as error:
            raise NotAuthorized(_MISSING) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAuthorized(f"not signed with {file}: {error}") from error
        made = Path(folder, "message.sig")
        if done.returncode != 0 or not made.is_file():
            lines = [line for line in (done.stderr or "").splitlines() if line.strip()]
            why = f": {lines[-1].strip()}" if lines else ""
            raise NotAuthorized(
                f"not signed: {file} could not be used{why}. Where it has a passphrase, or lies on a hardware key, run "
                "this at a terminal, or load it into an agent: ssh-add"
            )
        return made.read_text(encoding="ascii")


def _written(folder: str, name: str, text: str) -> str:
    path = Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _run(arguments: Sequence[str], data: bytes) -> _Ran:
    try:
        done = subprocess.run(
            ["ssh-keygen", *arguments],
            input=data,
            capture_output=True,
            env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
            timeout=SECONDS,
        )
    except FileNotFoundError as error:
        raise SweepstackError(_MISSING) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepstackError(f"ssh-keygen can't be asked whether the signature is good: {error}") from error
    return _Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def _good(ran: _Ran, namespace: str, principal: str = "") -> str:
    """The key, if ssh-keygen said in words and by its exit code that the signature is good."""
    whose = f" for {principal}" if principal else ""
    lines = ran.out.splitlines()
    key = _KEY.search(lines[0]) if lines and lines[0].startswith(f'Good "{namespace}" signature{whose} with ') else None
    if ran.code == 0 and key is not None:
        return key[1]
    raise BadSignature(_why(ran.err, namespace, principal))


def _why(said: str, namespace: str, principal: str) -> str:
    """OpenSSH's words for it, as ours."""
    if "namespace does not match" in said:
        return f'it was made for another purpose than "{namespace}"'
    if "incorrect signature" in said:
        return "it is forged, or what was signed was edited afterwards"
    if "not permitted for use in signature namespace" in said:
        return f'the list of signers does not let its key sign for "{namespace}"'
    if "has expired" in said or "not yet valid" in said:
        when = "any more" if "has expired" in said else "yet"
        return f"the list of signers does not accept its key {when} (valid-after, valid-before)"
    if "parse signature" in said or "armor" in said or "invalid format" in said:
        return "it is no signature by an SSH key"
    if "option" in said or "usage" in said:
        return f"this ssh-keygen is too old to check it: OpenSSH 8.9 or newer does ({said.strip().splitlines()[0]})"
    if (principal and not said.strip()) or "No principal matched" in said:
        return "its key is not in the list of signers for that name"
    return f"ssh-keygen does not accept it ({(said.strip().splitlines() or ['no reason given'])[-1]})"
