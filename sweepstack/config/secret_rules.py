"""Finds texts that look like a secret: by form, by what takes them, by the name before them.

Pure, and never shows the secret. Only these three tell a secret: 40 hex digits alone are a commit as well. The forms
of tokens come from the detectors of detect-secrets, and from a few rules of ours: for private keys, URLs, and services
that detect-secrets does not know. Its detectors of high entropy and of keywords are not used: they would report every
commit, digest and run id.
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
_TO_A_COMMAND = (
    (
        "a Weights & Biases key",
        re.compile(rf"\bwandb\s+login\s+(?:--?[\w-]+(?:[= ](?!-)\S+)?\s+)*?['\"]?({_NO_VALUE}[A-Za-z0-9_-]{{20,}})"),
    ),
    (
        "a password",
        re.compile(
            rf"\b(?:mysql\w*|mariadb[\w-]*|sshpass)\s(?:[^;&|\n]{{0,400}}?\s)?-p['\"]?({_NO_VALUE}[^\s;&|'\"]+)"
        ),
    ),
    (
        "a password",
        re.compile(
            rf"\b(?:(?:docker|podman|skopeo|buildah|helm registry)\s+login\s(?:[^;&|\n]{{0,400}}?\s)?-p|sshpass\s+-p"
            rf"|redis-cli\s(?:[^;&|\n]{{0,400}}?\s)?-a)\s+['\"]?({_NO_VALUE}[^\s;&|'\"]+)"
        ),
    ),
    (
        "a secret for aws",
        re.compile(rf"\baws\s+configure\s+set\s+\S*(?:secret|token)\S*\s+['\"]?({_NO_VALUE}[^\s;&|'\"]+)"),
    ),
)
"""What these commands are given. `mysql -p` alone asks for it."""
_IN_IMAGE = re.compile(r"^[^/@\s]*:([^/@\s]+)@(?!sha\d+:)")
"""`user:password@registry/…`; `name:tag@sha256:…` is an image by its digest."""
_LIKE_A_TOKEN = re.compile(r"(?=\w*?[0-9]+[A-Za-z]+[0-9]+[A-Za-z])[A-Za-z0-9]{16,}")
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
    r"|sha\d+:[0-9a-f]+"
    r"|</?\|?\w+\|?>|\[\w+\]"  # special tokens of a language model: <pad>, [MASK], <|endoftext|>
    r"|(~|\.{1,2})?(/[\w.-]{1,40}){2,}|(~|\.{1,2})/[\w.-]{1,40}",  # a path is no key
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z][a-z_./]{0,23}")
_ASSIGNED = re.compile(
    r"(?:(?<![\w$.-])|(?<=\s)--?)([A-Za-z][A-Za-z0-9_-]*)(=|(?<=[A-Za-z0-9])\s+(?=[^\s-]))(\"[^\"]*\"|'[^']*'|[^\s;&|]+)"
)
_SAID = re.compile(
    r"(?<![\w$.-])([A-Za-z][A-Za-z0-9_-]*)([\"'\]]{0,2}\s?[:=]\s?)(\"[^\"]*\"|'[^']*'|[^\s,;})]+)"
    r"|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)(\s(?:is\s|to\s)?)((?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{16,})"
)
"""`NAME: value`, as YAML, JSON and Python have it, and `NAME is value` where that can be no word."""
_LONG = 8
"""Characters. A shorter secret is masked only where it was found."""


def secret_in(text: str) -> str:
    """The kind of secret that the text seems to hold (`a GitHub token`), by its form alone; "" if none."""
    return next((kind for kind, _, _ in _by_form(text)), "")


def secret_for_a_command(text: str) -> str:
    """The kind of secret that a command in the text is given, such as `wandb login KEY`; "" if none."""
    return next((kind for kind, _, _ in _by_command(text)), "")


def secret_in_image(image: str) -> bool:
    """Whether the name of a container image begins with a user and a password."""
    return _IN_IMAGE.match(image) is not None


def may_be_a_value(name: str) -> bool:
    """Whether what stands where a variable's name belongs may be the secret itself: a token that letters begin."""
    return bool(secret_in(name)) or any(_LIKE_A_TOKEN.fullmatch(word) for word in name.split("_"))


def without_secrets(text: str) -> str:
    """The text with `…` in place of each part that has the form of a secret, or that a command takes as one.

    Nothing else changes, also where it is spelled like a short secret in the text.
    """
    return _without(text, [(start, end) for _, start, end in (*_by_form(text), *_by_command(text))])


def without_given(text: str) -> str:
    """The same for words of a person: also `…` for what is given to the name of a secret, as in `NAME=value`,
    `NAME: value` and `--name value`."""
    given = [match.span(3) for match in _ASSIGNED.finditer(text) if _is_given(match) and _to_a_secret(match, 1)]
    for match in _SAID.finditer(text):
        first = 1 if match[1] else 4
        given += [match.span(first + 2)] if _to_a_secret(match, first) else []
    return without_secrets(_without(text, given))


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with `…` for these parts, and for the longer ones wherever else they stand."""
    words = {text[start:end] for start, end in spans if end - start >= _LONG}
    for word in (word for word in words if re.search("[0-9]", word)):  # else it may be a word of ours
        spans = spans + [match.span() for match in re.finditer(re.escape(word), text)]
    kept, at = "", 0
    for start, end in sorted(spans):
        if end > at:
            kept, at = kept + text[at : max(start, at)] + (_HIDDEN if start >= at else ""), end
    return kept + text[at:]


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
        if _is_given(match):
            yield match[1], match[3].strip("\"'")


def _to_a_secret(match: re.Match[str], first: int) -> bool:
    return is_secret_value(match[first], match[first + 2].strip("\"'"))


def _is_given(match: re.Match[str]) -> bool:
    """Whether it is `name=value` or an option; else it is two words that follow each other."""
    return match[2] == "=" or match.start() < match.start(1)


def _by_command(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind of secret, where it begins and ends) for each that a command is given."""
    for start, piece in _pieces(text):
        for kind, pattern in _TO_A_COMMAND:
            for match in pattern.finditer(piece):
                yield kind, start + match.start(1), start + match.end(1)


def _by_form(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind of secret, where it begins and ends) for each part that has the form of one."""
    for start, piece in _pieces(text):
        for kind, pattern in _OURS:
            for match in pattern.finditer(piece):
                group = match.lastindex or 0
                yield kind, start + match.start(group), start + match.end(group)
        words = _WORD_OF_A_TOKEN.findall(piece)
        if any(re.search("[0-9]", word) and re.search("[A-Za-z]", word) for word in words):
            for detector in _detectors():
                for kind, begin, end in _detected(detector, piece):
                    yield kind, start + begin, start + end


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    for start in range(0, min(len(text), MOST_LOOKED_AT), _WINDOW - _OVERLAP):
        yield start, text[start : start + _WINDOW]


def _detected(detector: Any, piece: str) -> Iterator[tuple[str, int, int]]:
    if all(_HARMLESS.fullmatch(_FILLED_IN.sub("", found)) for found in detector.analyze_string(piece)):
        return
    for pattern in detector.denylist:
        for match in pattern.finditer(piece):
            yield f"a secret ({detector.secret_type})", match.start(), match.end()


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
