"""No key reaches a log or a screen."""

from __future__ import annotations

import logging

import pytest

from sweepstack.platforms.common import redact
from sweepstack.provider import secrets


def test_values_of_credential_like_variables_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the value turns up, its name is shown instead."""
    monkeypatch.setenv("SOME_API_KEY", "abcdef123456")
    assert redact.redact("GET /pods?x=abcdef123456") == "GET /pods?x=[SOME_API_KEY]"


@pytest.mark.parametrize("text", ["Authorization: Bearer abc.def", "api_key=abc123", '{"password": "hunter2"}'])
def test_key_shapes_are_masked(text: str) -> None:
    """Also when the value is in no variable."""
    assert "[redacted]" in redact.redact(text)


def test_the_filter_works_on_rendered_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments of a log call are rendered before they are masked."""
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    handler = logging.StreamHandler()
    handler.addFilter(redact.RedactingFilter())
    record = logging.LogRecord("x", logging.INFO, "f", 1, "sent %s", ("s3cr3t-value",), None)
    assert handler.filter(record)
    assert record.getMessage() == "sent [MY_TOKEN]"


def test_a_job_s_secrets_are_masked_whatever_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.platforms.common.redact._learned", {})
    monkeypatch.setenv("WANDB", "hunter2")
    monkeypatch.setenv("TWO_LINES", "first part\nsecond part")
    monkeypatch.setenv("SHORT", "abc")
    assert redact.redact("hunter2") == "hunter2", "until the job names it"
    assert secrets.values(["WANDB", "TWO_LINES", "SHORT", "UNSET"]) is None
    assert redact.redact("it said hunter2, and second part") == "it said [WANDB], and [TWO_LINES]"
    assert redact.redact("abc") == "abc", "that would mask ordinary words"


def test_a_command_that_names_a_variable_stays_readable() -> None:
    assert redact.redact("`export RUNPOD_API_KEY=…` with the key of user_ann") == (
        "`export RUNPOD_API_KEY=…` with the key of user_ann"
    )
    assert redact.redact("RUNPOD_API_KEY=rpa_0123456789") == "RUNPOD_API_KEY=[redacted]"


@pytest.mark.parametrize("name", ["SWEEPSTACK_SSH_KEY", "SWEEPSTACK_SIGNING_KEY"])
def test_the_path_of_a_key_is_no_key(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/nonexistent/id_ed25519")
    assert redact.redact("names /nonexistent/id_ed25519") == "names /nonexistent/id_ed25519"
    monkeypatch.setenv(name, "-----BEGIN KEY\nb3BlbnNz")
    assert redact.redact("names -----BEGIN KEY\nb3BlbnNz") == f"names [{name}]"
