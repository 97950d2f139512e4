"""Reads and writes sizes and durations with units, such as `40GB+` (a lower bound) and `15m`."""

from __future__ import annotations

import re
from typing import NamedTuple

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_SPELLED = {name: name.replace("IB", "iB") for name in _UNITS}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?B)(\+?)", re.IGNORECASE)


class Size(NamedTuple):
    """A size in bytes; `at_least` when it was written with a plus sign (`40GB+`). `text` is the canonical spelling."""

    bytes: int
    at_least: bool
    text: str


def parse_size(text: str) -> Size:
    """`50MB`, `1.5 GiB`, `40GB+` as a Size. KB is 1000 bytes, KiB 1024. Raises ValueError without a unit."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size with its unit, such as 50MB")
    from decimal import Decimal

    number, unit, plus = Decimal(match[1]), match[2].upper(), match[3]
    amount = number * _UNITS[unit]
    if amount != amount.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of bytes")
    shown = f"{number.normalize():f}"
    return Size(int(amount), bool(plus), f"{shown}{_SPELLED[unit]}{plus}")


def amount_of(quantity: str) -> float:
    """What clusters of pods write (`64Mi`, `2G`, `1000`; `1500m` is 1.5) as a number; 0 for what is none."""
    try:
        return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(parse_size(f"{quantity}B").bytes)
    except ValueError:
        return 0


def spell_bytes(count: float) -> str:
    """Bytes for people, in powers of ten, as disks and networks count them: `1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def spell_rate(usd: float) -> str:
    """USD per hour for people: `1.89`, and two digits of a small one, `0.0033`: nothing that bills is shown as 0.00."""
    if usd == 0 or usd >= 0.1:
        return f"{usd:.2f}"
    return f"{usd:.2g}" if usd >= 1e-4 else f"{usd:.7f}".rstrip("0")


def count(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`, `2 boxes`."""
    return f"{number} {noun if number == 1 else noun + ('es' if noun.endswith('x') else 's')}"


def enough_memory(had: int) -> str:
    """The line of the stack config that gives 1.2 times the bytes that were too little, rounded up; "" for 0."""
    wanted = -(-had * 12 // 10)
    step = 10**9 if wanted > 10**10 else 10**8
    rounded = -(-wanted // step) * step
    if not rounded:
        return ""
    size = f"{rounded // 10**9}GB" if rounded % 10**9 == 0 else f"{rounded // 10**6}MB"
    return f"resources.memory: {size}"


def parse_duration(text: str) -> float:
    """`90s`, `15m`, `12h`, `3d` in seconds. Raises ValueError for anything else, and for zero."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 12h or 3d")
    return seconds


def skew_words(seconds: float) -> str:
    """A sentence for people about a box's clock that is `seconds` ahead of ours; "" for less than a minute."""
    if abs(seconds) < 60:
        return ""
    minutes = round(abs(seconds) / 60)
    far = f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"
    where = "ahead of" if seconds > 0 else "behind"
    return (
        f"its clock is {far} {where} this machine's: its times are read with that in mind, and no receipt holds one. "
        "What checks a date there (TLS, tokens) may fail: set it, or ask who runs the host"
    )
