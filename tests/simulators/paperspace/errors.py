"""Refusals in the vendor's envelope: `{"code", "message", "details"?}`, without another object around it.

Envelope and codes are those of its OpenAPI document and of its command-line client. Which refusal has which code is not
published: a machine in the wrong state is a conflict here, and what is malformed a bad request.
"""

from __future__ import annotations

from tests.simulators.simulator import Refusal, Reply

PARSE = "PARSE_ERROR"
BAD_REQUEST = "BAD_REQUEST"
UNAUTHORIZED = "UNAUTHORIZED"
FORBIDDEN = "FORBIDDEN"
NOT_FOUND = "NOT_FOUND"
NO_METHOD = "METHOD_NOT_SUPPORTED"
TIMEOUT = "TIMEOUT"
CONFLICT = "CONFLICT"
PRECONDITION = "PRECONDITION_FAILED"
TOO_MANY = "TOO_MANY_REQUESTS"
INTERNAL = "INTERNAL_SERVER_ERROR"

_STATUS = {
    PARSE: 400,
    BAD_REQUEST: 400,
    UNAUTHORIZED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    NO_METHOD: 405,
    TIMEOUT: 408,
    CONFLICT: 409,
    PRECONDITION: 412,
    TOO_MANY: 429,
    INTERNAL: 500,
}


def said(code: str, message: str, status: int | None = None) -> Reply:
    """The answer that says so; `status` where it is not the usual one."""
    return Reply(status or _STATUS[code], {"code": code, "message": message})


def refusal(code: str, message: str) -> Refusal:
    """To be raised: nothing was done."""
    return Refusal(said(code, message))


def of_status(status: int, detail: str) -> Reply:
    """For a fault that names only a status."""
    usual = {number: code for code, number in _STATUS.items() if code != PARSE}
    return said(usual.get(status, INTERNAL if status >= 500 else BAD_REQUEST), detail, status)
