"""Which SSH key reaches rented boxes. Only its public half is read or sent."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import NotAuthorized

KEY_VARIABLE = "SWEEPSTACK_SSH_KEY"
"""The file of a private key, or of its public half where an agent holds the private one."""
NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
SECONDS = 10.0
REMEMBERED_SECONDS = 60.0
_FOUND: dict[tuple[str | None, ...], tuple[float, SshKey]] = {}
_KINDS = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")


@dataclass(frozen=True)
class SshKey:
    """One key pair. `public`: type and base64, as in authorized_keys, without the comment. `source`: for people.

    `identity`: the private key's file; None where the agent holds it, and is asked for the key by `public`.
    """

    public: str
    identity: Path | None
    source: str


WITHOUT = SshKey("", Path(os.devnull), "no key of yours")
"""For a host that is entered over a connection which its person opened."""


def public_key(env: Mapping[str, str] | None = None) -> str:
    """The public key that a new box is to let in. See `choose`."""
    return choose(env).public


def choose(env: Mapping[str, str] | None = None) -> SshKey:
    """The file that SWEEPSTACK_SSH_KEY names; else the agent's first key; else ~/.ssh/id_ed25519, id_ecdsa, id_rsa.

    Asks no passphrase. What was found holds for a minute. Raises NotAuthorized, with the command that makes or loads a
    key, where there is none that can be used without a question.
    """
    env = os.environ if env is None else env
    shell = tuple(env.get(name) for name in (KEY_VARIABLE, "SSH_AUTH_SOCK", "HOME"))
    found = _FOUND.get(shell)
    if found is None or time.monotonic() - found[0] > REMEMBERED_SECONDS:
        found = _FOUND[shell] = (time.monotonic(), _choose(env))
    return found[1]


def of_files(paths: Sequence[Path], source: str, env: Mapping[str, str] | None = None) -> SshKey:
    """The first of these key files that is there. `source`: who names them, for people. Raises NotAuthorized, where
    there is none or it can't be used without a question."""
    for path in paths:
        if path.is_file() or path.with_name(f"{path.name}.pub").is_file():
            return _from_file(path, os.environ if env is None else env, source)
    raise NotAuthorized(f"{source} names {', '.join(map(str, paths))}, and there is no such key")


def _choose(env: Mapping[str, str]) -> SshKey:
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        raise NotAuthorized(
            "there is no OpenSSH client here, and boxes are reached by it: apt-get install openssh-client"
        )
    named = env.get(KEY_VARIABLE)
    if named and ("\n" in named or "PRIVATE KEY" in named):
        raise NotAuthorized(f"${KEY_VARIABLE} holds a key itself; it is to hold the path of a private key's file")
    if named:
        return _from_file(Path(named).expanduser(), env, f"${KEY_VARIABLE}")
    held = _agent_keys(env)
    if held:
        return SshKey(held[0], None, "the ssh agent")
    home = Path(env.get("HOME") or "~").expanduser() / ".ssh"
    for name in NAMES:
        if (home / name).is_file():
            return _from_file(home / name, env, str(home / name))
    raise NotAuthorized(
        f"there is no SSH key to reach boxes with: no ${KEY_VARIABLE}, no key in an ssh agent, and none of "
        f"{', '.join(NAMES)} in {home}. Make one: `ssh-keygen -t ed25519`"
    )


def _from_file(path: Path, env: Mapping[str, str], source: str) -> SshKey:
    private = path.with_suffix("") if path.suffix == ".pub" else path
    public = private.with_name(f"{private.name}.pub")
    if not private.is_file() and not public.is_file():
        raise NotAuthorized(
            f"{source} names {path}, and there is no such file. It is the private SSH key that boxes are reached with: "
            f"name one that is there, or make it: `ssh-keygen -t ed25519 -f {private}`"
        )
    text = _public(public) if public.is_file() else _derived(private, env)
    if not private.is_file():
        if text not in _agent_keys(env):
            raise NotAuthorized(f"{public} has no private key beside it, and the ssh agent has none for it: `ssh-add`")
        return SshKey(text, None, source)
    if text in _agent_keys(env):
        return SshKey(text, None, source)
    if public.is_file():
        _derived(private, env)  # proves that it opens without a passphrase: no person is there to type one
    return SshKey(text, private, source)


def _public(path: Path) -> str:
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        raise NotAuthorized(f"{path} can't be read: {error}") from error
    if len(words) < 2 or not words[0].startswith(_KINDS):
        raise NotAuthorized(f"{path} is no public SSH key. Make a pair: `ssh-keygen -t ed25519`")
    return " ".join(words[:2])


def _derived(private: Path, env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", "-y", "-P", "", "-f", str(private)],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAuthorized(f"{private} can't be read: {error}") from error
    words = done.stdout.split()
    if done.returncode != 0 or len(words) < 2:
        why = (done.stderr.strip().splitlines() or ["ssh-keygen does not say why"])[-1]
        beside = private.with_name(f"{private.name}.pub").is_file()
        write = "" if beside else f"write its public half, `ssh-keygen -y -f {private} > {private}.pub`, and "
        raise NotAuthorized(
            f"{private} can't be used without a question ({why}), and no agent holds it: {write}load it into one, "
            f"`eval $(ssh-agent)` and `ssh-add {private}`"
        )
    return " ".join(words[:2])


def _agent_keys(env: Mapping[str, str]) -> list[str]:
    if not env.get("SSH_AUTH_SOCK") or shutil.which("ssh-add") is None:
        return []
    try:
        done = subprocess.run(
            ["ssh-add", "-L"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []  # an agent that does not answer holds nothing that could be used
    lines = [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return [" ".join(words[:2]) for words in lines if len(words) >= 2 and words[0].startswith(_KINDS)]
