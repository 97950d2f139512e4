"""Entries of the state as a test needs them: all that is needed is there, and what it names counts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sweepstack.core.box_end import TeardownFacts
from sweepstack.status.engine.state import BoxEntry, IdentityEntry, QueueEntry, VolumeEntry

DIGEST = f"sha256:{'0' * 64}"
SWEEP = {"identity": "a1b2c3", "evidence": "file://nowhere/x"}
ENDS = TeardownFacts(verb="destroy", kills=(), keeps=()).as_inputs()


def identity_entry(**known: Any) -> IdentityEntry:
    """The sweep `s`."""
    return IdentityEntry(**{**SWEEP, "urn": "urn:s", "project": "p", "stack": "s", "pull_to": "evidence"} | known)


def volume_entry(**known: Any) -> VolumeEntry:
    """A volume of this machine."""
    facts = {**SWEEP, "urn": "urn:v", "adapter": "local", "name": "v", "native_id": "v-1", "location": "here"}
    return VolumeEntry(**facts | known)


def box_entry(**known: Any) -> BoxEntry:
    """`box-0` on a host, `host-1`."""
    facts = {**SWEEP, "urn": "urn:box-0", "name": "box-0", "native_id": "host-1", "adapter": "ssh:root@192.0.2.7:22"}
    facts |= {"account": "a", "generation": 1, "tag": "a1b2c3-box-0-g1", "phase": "running", "roster_digest": DIGEST}
    return BoxEntry(**facts | {"teardown": ENDS} | known)


def queue_entry(job: dict[str, Any] | None = None, **known: Any) -> QueueEntry:
    """Of that box, without a cell. What a newer version added passes."""
    facts = {**SWEEP, "urn": "urn:q", "adapter": "local", "box": "host-1", "box_name": "box-0", "account": "a"}
    facts |= {"generation": 1, "roster_digest": DIGEST, "teardown": ENDS, "stack": "s", "cells": (), "artifacts": ()}
    told = {"run": "true", "workdir": "job", "code": DIGEST} | (job or {})
    facts |= {"job": told, "launched_at": datetime(2026, 11, 21, tzinfo=UTC)}
    return QueueEntry.model_validate(facts | known, extra="ignore")
