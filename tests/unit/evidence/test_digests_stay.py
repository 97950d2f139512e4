"""What was written before a field came keeps its digest: an old receipt, launch or approval stays what it was."""

from __future__ import annotations

from sweepstack.core.records import ArtifactSpec


def test_an_artifact_without_a_command_is_written_as_before() -> None:
    spec = ArtifactSpec(path="a.json", load="json", keys=("loss",))
    assert spec.model_dump(mode="json") == {
        "path": "a.json",
        "load": "json",
        "keys": ["loss"],
        "finite": "require",
        "min_bytes": 1,
    }
    command = ArtifactSpec(path="a.json", load="command", run="check {file}", trust=True)
    assert ArtifactSpec.model_validate(command.model_dump(mode="json")) == command
    assert ArtifactSpec.model_validate_json(command.model_dump_json()) == command
