"""All that a platform's simulator is built from, under one name."""

from __future__ import annotations

from tests.simulators.clock import VirtualClock, rfc3339
from tests.simulators.faults import AFTER, BEFORE, TRANSPORT, Choice, Fault, FaultPlan, draw
from tests.simulators.ledger import HOUR, MONTH, Account, Rental, RentalLedger
from tests.simulators.quotas import IntervalQuota, WindowQuota
from tests.simulators.server import SimServer, as_fault
from tests.simulators.simulator import USUAL_HEADERS, Call, Handler, Refusal, Reply, Request, Simulator, parse

__all__ = [
    "AFTER", "BEFORE", "HOUR", "MONTH", "TRANSPORT", "USUAL_HEADERS", "Account", "Call", "Choice", "Fault",
    "FaultPlan", "Handler", "IntervalQuota", "Refusal", "Rental", "RentalLedger", "Reply", "Request", "SimServer",
    "Simulator", "VirtualClock", "WindowQuota", "as_fault", "draw", "parse", "rfc3339",
]  # fmt: skip
