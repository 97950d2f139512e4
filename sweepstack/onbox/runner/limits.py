"""Decides when the runner ends an attempt: at the job's timeout, or when it hangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.runner.attempt import Attempt, Ended
from sweepstack.onbox.runner.patrol import STALL_SECONDS
from sweepstack.onbox.runner.records import say

STALLS = 3
"""A hung cell is ended after so many stall intervals if other cells wait for its slot, unless `on_hang` says
otherwise."""


def limit(
    attempt: Attempt,
    spec: Mapping[str, Any],
    hung: str,
    again: bool,
    still: float = 0.0,
    waits: bool = False,
    ends: bool = False,
) -> Ended | None:
    """Why a running attempt is to be ended now; None when it goes on. It is ended when `timeout_seconds` is over; or
    when the patrol calls it hung (`hung`: the patrol's reason, else "") and `on_hang` is `retry` or `drop`, or a person
    asked for the cell `again` (in any case where that `ends` it), or it showed no progress for `STALLS` intervals
    (`still`: seconds) while another cell `waits` for its slot. The current spec counts, not the one at its start.
    """
    most = float(spec.get("timeout_seconds") or 0)
    if most and attempt.seconds() > most:
        return Ended("timeout", f"it took longer than job.timeout ({most:g} s) and was ended", False)
    if ends:
        return Ended("stopped", "it was ended to run again (sweepctl retry)", False)
    if hung and again:
        return Ended("hung", f"hung, and was ended to run again (sweepctl retry): {hung}", False)
    policy = spec.get("on_hang")
    if hung and policy in ("retry", "drop"):
        given_up = "; given up (job.on_hang: drop)" if policy == "drop" else ""
        return Ended("hung", f"hung, and was ended: {hung}{given_up}", policy == "drop")
    if hung and waits and still >= STALLS * float(spec.get("stall_seconds", STALL_SECONDS)):
        return Ended("hung", f"hung, and was ended as other cells wait for its slot: {hung}", False)
    return None


def mark_ended(attempt: Attempt, ended: Ended) -> None:
    """Marks the attempt as ended, and logs it. What it does within its grace does not count."""
    attempt.ended = ended
    say(f"{attempt.entry.cell} attempt {attempt.number}: {ended.reason}")
