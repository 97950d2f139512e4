"""Which part of an approval goes to which resource."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sweepstack.core.records import Approval
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.volume_stack_plan import StorePlan


def approval_for(plan: Plan | StorePlan, name: str) -> dict[str, Any] | None:
    """The approval, where it names this box or volume. Whole: its waivers' digest, and the boxes that may finish
    together, are parts of what the person said."""
    approval = plan.approval
    if approval is None or not any(action.box == name for action in approval.actions):
        return None
    return approval.model_dump(mode="json")


def approval_to_leave(approval: Approval | None, staying: Collection[str]) -> dict[str, Any] | None:
    """The approval, where it names a box or volume that this program no longer has (`want: gone`). `staying`: those
    that it has."""
    if approval is None or all(action.box in staying for action in approval.actions):
        return None
    return approval.model_dump(mode="json")
