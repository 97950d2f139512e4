"""Refusals in the vendor's envelope: `{"error": {"code", "message", "suggestion"?}}`.

Codes, texts and statuses are those of its OpenAPI document, version 1.10.0 (schemas `ApiError…`). Clients are told
there to go by the code alone.
"""

from __future__ import annotations

from typing import Any

from tests.simulators.simulator import Refusal, Reply

INACTIVE = "global/account-inactive"
CONFLICT = "global/conflict"
FORBIDDEN = "global/forbidden"
INTERNAL = "global/internal-error"
INVALID_ADDRESS = "global/invalid-address"
INVALID_KEY = "global/invalid-api-key"
INVALID = "global/invalid-parameters"
NOT_FOUND = "global/not-found"
NO_OBJECT = "global/object-does-not-exist"
QUOTA = "global/quota-exceeded"
UNAVAILABLE = "provider/internal-unavailable"
NO_CAPACITY = "instance-operations/launch/insufficient-capacity"

_SAID: dict[str, tuple[int, str, str | None]] = {
    INACTIVE: (
        403,
        "Your account is inactive.",
        "Make sure you have verified your email address and have a valid payment method.",
    ),
    CONFLICT: (409, "The request conflicts with the current state of the resource.", None),
    FORBIDDEN: (403, "You may not do this.", None),
    INTERNAL: (500, "An internal server error occurred.", "Try again later. Contact Support if the problem persists."),
    INVALID_ADDRESS: (403, "Your billing address is invalid.", "Make sure your billing address is valid."),
    INVALID_KEY: (
        401,
        "API key was invalid, expired, or deleted.",
        "Check your API key or create a new one, then try again.",
    ),
    INVALID: (400, "Invalid request data.", None),
    NOT_FOUND: (404, "The requested resource was not found.", None),
    NO_OBJECT: (404, "Specified instance does not exist.", "Check the id or name and try again."),
    QUOTA: (400, "Quota exceeded.", "Contact Support to increase your quota."),
    UNAVAILABLE: (503, "Provider unavailable", "Try again shortly"),
    NO_CAPACITY: (
        400,
        "Not enough capacity to fulfill launch request.",
        "Choose an instance type with more availability, or try again later.",
    ),
}


def said(code: str, message: str | None = None, status: int | None = None) -> Reply:
    """The answer that says so; `message` and `status` where they are not the usual ones."""
    usual, text, suggestion = _SAID[code]
    error: dict[str, Any] = {"code": code, "message": message or text}
    if suggestion is not None:
        error["suggestion"] = suggestion
    return Reply(status or usual, {"error": error})


def refusal(code: str, message: str | None = None, status: int | None = None) -> Refusal:
    """To be raised: nothing was done."""
    return Refusal(said(code, message, status))


def of_status(status: int, detail: str) -> Reply:
    """For a fault that names only a status."""
    usual = {401: INVALID_KEY, 403: FORBIDDEN, 404: NOT_FOUND, 409: CONFLICT, 503: UNAVAILABLE}
    return said(usual.get(status, INTERNAL if status >= 500 else INVALID), detail, status)
