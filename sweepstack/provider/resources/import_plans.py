"""What an import asks of the stack file: which box, or which volumes, are to be had on a platform.

Imported where one is asked for: to read a stack file takes a quarter of all that the other requests import.
"""

from __future__ import annotations

from sweepstack.billing.stray import import_command
from sweepstack.config.find import known_platforms
from sweepstack.config.stack_config import StackConfig, StoreConfig, load_any
from sweepstack.core.paths import docs_page
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profile, load_profiles
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.volume_stack_plan import StorePlan, plan_store
from sweepstack.provider.session import Operation


def plan_of_box(op: Operation, named: str) -> Plan:
    """What the stack file says of a box on this platform. Raises SweepstackError."""
    config = load_any(op.session.project_root, op.stack)
    if not isinstance(config, StackConfig):
        raise SweepstackError(f"{config.file} describes volumes, and a box belongs to a sweep")
    plans = resolve_fleet(config, load_profiles(config.candidates)).plans
    found = next((plan for plan in plans if plan.platform == named), None)
    if found is None and named not in (known := known_platforms()):
        way = did_you_mean(named, known)
        raise SweepstackError(f"there is no platform {named}{way} (profiles: {', '.join(known)})")
    if found is None:
        there = ", ".join(plan.platform for plan in plans)
        raise SweepstackError(
            f"{config.file} has no box on {named} (there: {there}). Next: {named} below candidates, and on: {named} "
            f"for a box that is named {op.name}"
        )
    return found


def plan_of_volume(op: Operation, asked: str) -> StorePlan:
    """What the stack file says of volumes on the platform of `asked` (PLATFORM:ID). Raises SweepstackError."""
    named, _, native_id = asked.partition(":")
    config = load_any(op.session.project_root, op.stack)
    if not native_id or not isinstance(config, StoreConfig) or config.platform != named:
        way = import_command("STACK", op.name, f"PLATFORM:{native_id or asked}", "Volume")
        raise SweepstackError(
            f"{asked}: {config.file} keeps no volumes of that platform. Next, with a stack that does "
            f"({docs_page('volumes.md')}): {way}"
        )
    return plan_store(config, load_profile(named))
