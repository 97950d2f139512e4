"""What was written before a field came keeps its digest: an old receipt, launch or approval stays what it was."""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.core.records import ArtifactSpec, Birth


def test_an_artifact_without_a_command_is_written_as_before() -> None:
    spec = ArtifactSpec(path="a.json", load="json", keys=("loss",))
    assert spec.model_dump(mode="json") == {
        "path": "a.json",
        "load": "json",
        "keys": ["loss"],
        "finite": "require",
        "min_bytes": 1,
    }
    named = ArtifactSpec(path="a.pt", load="torch", finite=("model",), infinite=("mask",))
    assert ArtifactSpec.model_validate_json(named.model_dump_json()) == named
    assert ArtifactSpec.model_validate(named.model_dump(mode="json")) == named
    command = ArtifactSpec(path="a.json", load="command", run="check {file}", trust=True)
    assert ArtifactSpec.model_validate(command.model_dump(mode="json")) == command
    assert ArtifactSpec.model_validate_json(command.model_dump_json()) == command


def test_a_birth_without_a_price_of_traffic_reads_in_an_older_sweepstack() -> None:
    """Which refuses fields that it does not know. A price of 0 is written: without it the price would not be known."""
    begun = datetime(2026, 11, 24, tzinfo=UTC)
    facts = {"box": "a", "generation": 1, "tag": "t", "platform": "vastai", "account": "7", "native_id": None}
    birth = Birth.model_validate({**facts, "price_per_hour": 0.3, "begun_at": begun, "created_at": None})
    older = {"mounts", "begun_at", "created_at", "ended_at", "ended_how", "asked_at", "shown_by", "rests"}
    assert set(birth.model_dump(mode="json")) - {"schema_version", "schema"} == {*facts, "price_per_hour", *older}
    free = birth.model_copy(update={"egress_per_gb": 0.0})
    assert Birth.model_validate_json(free.model_dump_json()).egress_per_gb == 0.0
