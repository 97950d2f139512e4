"""RunPod's refusals, row by row, as they were seen."""

from __future__ import annotations

import pytest

from sweepstack.onbox.common.errors import InsufficientFunds, NoCapacity, NotAuthorized, PlatformError, RequestRefused
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.platforms.runpod.states import refused

HTTP = HttpClient("RunPod", "http://127.0.0.1:1", "", key_hint="RUNPOD_API_KEY")
NO_MORE = "There are no longer any instances available with the requested specifications. Please refresh and try again."
ROWS: list[tuple[int, str, type[PlatformError]]] = [
    (400, NO_MORE, NoCapacity),
    (400, "There are no longer any instances available with the request specifications. Please try again later.",
     NoCapacity),
    (400, "There are no instances available with the request specifications. Please try again later.", NoCapacity),
    (400, "There are no longer any instances available with enough disk space.", NoCapacity),
    (400, "There are not enough free GPUs on the host machine to start this pod.", NoCapacity),
    (400, "This machine does not have the resources to deploy this pod", NoCapacity),
    (400, "Insufficient balance to resume this on-demand pod. You need at least $3.59 (current: $3.01).",
     InsufficientFunds),
    (403, "the account's hourly spend limit would be exceeded", InsufficientFunds),
    (400, "You must either provide a template id or pod configuration parameters", RequestRefused),
    (400, "Something went wrong. Please try again later or contact support.", RequestRefused),
    (400, "", RequestRefused),
    (403, "access denied", NotAuthorized),
    (404, "resource not found", RequestRefused),
    (409, "action not allowed", RequestRefused),
    (413, "body too large", RequestRefused),
    (422, "Request validation failed.; $: additional properties 'x' not allowed", RequestRefused),
    (422, "$.action: value must be one of 'start', 'stop', 'restart', 'terminate'", RequestRefused),
]  # fmt: skip


@pytest.mark.parametrize(("status", "text", "kind"), ROWS)
def test_each_refusal_is_its_error_and_keeps_its_text(status: int, text: str, kind: type[PlatformError]) -> None:
    error = refused(HTTP, HttpAnswer(status, {"detail": text}, text), "2× L4")
    assert type(error) is kind
    assert text in str(error)
    assert "2× L4" in str(error)
