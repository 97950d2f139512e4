"""Finds texts that look like a secret, by their form or by the name that they are assigned to.

Pure, and never shows the secret. The forms of tokens come from the detectors of detect-secrets, and from a few rules of
ours: for private keys, URLs, and services that detect-secrets does not know. Its detectors of high entropy and of
keywords are not used: they would report every commit, digest and run id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

_HIDDEN = "…"
_NO_VALUE = r"(?![{$<…]|\*+(?:@|\s|$))"
"""A placeholder, a shell variable or asterisks in place of a value."""
_OURS = (
    ("a private key", re.compile(r"(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|PuTTY-User-Key-File-\d).*", re.DOTALL)),
    ("a password in a URL", re.compile(rf"://[^/\s:@'\"]*:({_NO_VALUE}[^/\s@'\"]+)@")),
    ("a token in a URL", re.compile(rf"\bhttps?://({_NO_VALUE}[^/\s:@'\"]+)@", re.IGNORECASE)),
    (
        "a key in a URL",
        re.compile(
            rf"[?&](?:X-Amz-Signature|sig|(?:access_)?token|(?:api_?)?key|password)=({_NO_VALUE}[^&\s'\"]{{8,}})"
        ),
    ),
    ("a Hugging Face token", re.compile(r"\b(?:hf_|api_org_)[A-Za-z0-9]{20,}")),
    ("a Weights & Biases key", re.compile(r"\b(?:wandb_v\d+_[A-Za-z0-9_]{20,}|local-[0-9a-f]{40}\b)")),
    ("a GitHub token", re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}")),
    ("an API key", re.compile(r"\b(?:sk-(?:ant|proj|or|svcacct|live|test)-|nvapi-|r8_|rpa_|dop_v1_|glpat-)[\w-]{20,}")),
    ("a Google API key", re.compile(r"\b(?:AIza|ya29\.)[A-Za-z0-9_-]{35}")),
    (
        "an Authorization header",
        re.compile(rf"\bauthorization:\s*(?:\w+\s+)?({_NO_VALUE}[A-Za-z0-9._~+/=-]{{8,}})", re.IGNORECASE),
    ),
    (
        "a user and password",
        re.compile(rf"(?:^|\s)(?:-u|--user)[ =]['\"]?[^\s:{{$'\"]+:({_NO_VALUE}(?!\d+(?:\s|$))[^\s'\"]+)"),
    ),
)
_WORD_OF_A_TOKEN = re.compile(r"[A-Za-z0-9_+/=.:-]{16,}")
"""detect-secrets takes only words of this form for tokens. Most commands have none, so it need not be imported."""
_DETECTORS = (
    *("artifactory", "aws", "azure_storage_key", "basic_auth", "cloudant", "discord", "github_token", "gitlab_token"),
    *("ibm_cloud_iam", "jwt", "mailchimp", "npm", "openai", "pypi_token", "sendgrid", "slack", "softlayer"),
    *("square_oauth", "stripe", "telegram_token", "twilio"),
)
_WINDOW, _OVERLAP = 4096, 512
"""Texts are searched in pieces: the time of some expressions grows with the square of the length."""
MOST_LOOKED_AT = 100_000
"""In characters. A shell takes no longer command."""
_SURE = re.compile(
    r"(API_?KEY|ACCESS_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PRIVATE_?KEY|(?<![A-Z])(PASS|PWD))(_?\d+)?$",
    re.IGNORECASE,
)
_LIKELY = re.compile(r"(^|_)(KEY|AUTH)(_?\d+)?$", re.IGNORECASE)
_FILLED_IN = re.compile(r"\$?\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*|\$\([^()]*\)|`[^`]*`")
_HARMLESS = re.compile(
    r"[^A-Za-z0-9]*|[-+]?\d+(\.\d+)?(e[-+]?\d+)?|true|false|none|null|yes|no|on|off|auto"
    r"|</?\|?\w+\|?>|\[\w+\]"  # special tokens of a language model: <pad>, [MASK], <|endoftext|>
    r"|(~|\.{1,2})?(/[\w.-]{1,40}){2,}|(~|\.{1,2})/[\w.-]{1,40}",  # a path is no key
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z][a-z_./]{0,23}")
_ASSIGNED = re.compile(
    r"(?:(?<![\w$.-])|(?<=\s)--?)([A-Za-z][A-Za-z0-9_-]*)(=|(?<=[A-Za-z0-9])\s+(?=[^\s-]))(\"[^\"]*\"|'[^']*'|[^\s;&|]+)"
)


def secret_in(text: str) -> str:
    """The kind of secret that the text seems to hold (`a GitHub token`), by its form alone; "" if none."""
    return next((kind for kind, _ in _matches(text)), "")


def without_secrets(text: str) -> str:
    """The text with `…` in place of each part that has the form of a secret."""
    for _, found in _matches(text):
        text = text.replace(found, _HIDDEN)
    return text


def is_secret_value(name: str, value: str) -> bool:
    """Whether `name` is the name of a secret and `value` may be one: no number, placeholder, path or plain flag."""
    name = name.replace("-", "_")
    if not (_SURE.search(name) or _LIKELY.search(name)):
        return False
    rest = _FILLED_IN.sub("", value).strip()
    if _HARMLESS.fullmatch(rest):
        return False
    return bool(_SURE.search(name)) or not _WORD.fullmatch(rest)


def assigned_in(command: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each assignment in a shell command: `NAME=value`, `--name value`, `--name=value`."""
    for match in _ASSIGNED.finditer(command):
        name, sign, value = match.groups()
        is_option = match.start() < match.start(1)
        if sign == "=" or is_option:
            yield name, value.strip("\"'")


def _matches(text: str) -> Iterator[tuple[str, str]]:
    """(kind of secret, the secret) for each secret in the text."""
    for start in range(0, min(len(text), MOST_LOOKED_AT), _WINDOW - _OVERLAP):
        piece = text[start : start + _WINDOW]
        for kind, pattern in _OURS:
            for match in pattern.finditer(piece):
                yield kind, match[match.lastindex or 0]
        words = _WORD_OF_A_TOKEN.findall(piece)
        if any(re.search("[0-9]", word) and re.search("[A-Za-z]", word) for word in words):
            for detector in _detectors():
                yield from _detected(detector, piece)


def _detected(detector: Any, piece: str) -> Iterator[tuple[str, str]]:
    if all(_HARMLESS.fullmatch(_FILLED_IN.sub("", found)) for found in detector.analyze_string(piece)):
        return
    for pattern in detector.denylist:
        for match in pattern.finditer(piece):
            yield f"a secret ({detector.secret_type})", match[0]


@cache
def _detectors() -> tuple[Any, ...]:
    """The detectors of detect-secrets. The import takes 0.25 s, so it is made only for texts that may hold a token."""

    from detect_secrets.plugins.base import RegexBasedDetector

    found = []
    for name in _DETECTORS:
        module = import_module(f"detect_secrets.plugins.{name}")
        kinds = [
            kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__
        ]
        found += [kind() for kind in kinds if issubclass(kind, RegexBasedDetector)]
    return tuple(found)
