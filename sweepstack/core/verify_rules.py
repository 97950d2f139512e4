"""The rules that a cell is verified by, as one digest: a receipt names those that it was made with."""

from __future__ import annotations

from collections.abc import Iterable

from sweepstack.core.records import ArtifactSpec
from sweepstack.onbox.common.canonical import digest_of


def artifacts_digest(artifacts: Iterable[ArtifactSpec]) -> str:
    """Over all artifacts of the stack file, whatever order they were written in."""
    return digest_of([spec.model_dump(mode="json") for spec in sorted(artifacts, key=lambda spec: spec.path)])
