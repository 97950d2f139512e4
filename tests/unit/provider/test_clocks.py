"""A platform whose stopped boxes are released after a while: said before the stop, and while the clock runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.billing.ledger import FOUND_STOPPED, record_phase, spent
from sweepstack.core.records import Teardown
from sweepstack.core.resources import BoxState
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.operations.power import stop_box
from sweepstack.provider.resources import run_or_stop
from sweepstack.provider.resources.teardown import context_of
from sweepstack.provider.session import Severity
from sweepstack.teardown.box_context import BoxContext
from tests.unit.provider.support import BOX, FACTS, Sweep

RELEASES = FACTS | {
    "paths": {"scratch": "scratch", "data": "data", "durable": "mnt/durable"},
    "stop": {"kills": ["scratch"], "keeps": ["data", "durable"], "price_per_hour": 0.03},
    "clocks": [{"what": "released", "days": 15, "kills": ["data"]}],
    "keeps_per_gb_month": {"durable": 0.07},
}


def stopped(sweep: Sweep, box: BoxState, days_ago: float) -> None:
    """It is stopped, as if for so long."""
    sweep.platform.stop(box.native_id, box.account)
    for phase, ago in (("running", days_ago + 1), ("stopped", days_ago)):
        record_phase(
            sweep.store,
            box=box.name,
            native_id=box.native_id,
            platform="local",
            account=box.account,
            phase=phase,  # type: ignore[arg-type]
            price_per_hour=0.5 if phase == "running" else 0.03,
            at=datetime.now(UTC) - timedelta(days=ago),
        )


def test_the_preview_of_a_stop_says_which_clock_it_starts(sweep: Sweep) -> None:
    old = sweep.box_inputs(teardown=RELEASES)
    sweep.box(teardown=RELEASES)
    sweep.said.lines.clear()
    checked = BOX.check(sweep.op(), old, sweep.box_inputs(teardown=RELEASES, want="stopped"))
    assert checked.failures == []
    said = sweep.said.text(Severity.INFO)
    assert "a stop starts a clock: released after 15 d, which kills data" in said


def test_a_running_clock_is_a_warning_of_every_look(sweep: Sweep) -> None:
    box = sweep.box(teardown=RELEASES)
    for entry in (sweep.store.root / "records" / "ledger").iterdir():
        entry.unlink()
    stopped(sweep, box, days_ago=13.5)
    BOX.read(sweep.op(), box.native_id, box)
    assert "box box-0: CLOCK released in 1 d 1" in sweep.said.warnings
    assert "kills data" in sweep.said.warnings
    assert "boxes.box-0.want: running ends it" in sweep.said.warnings


def test_a_box_that_runs_has_no_clock(sweep: Sweep) -> None:
    box = sweep.box(teardown=RELEASES)
    BOX.read(sweep.op(), box.native_id, box)
    assert "CLOCK" not in sweep.said.warnings


def test_a_refused_delete_says_what_survives_a_month(sweep: Sweep) -> None:
    box = sweep.box(teardown=RELEASES)
    sweep.queue(box)
    sweep.drained(box)
    with pytest.raises(TeardownRefused) as refused:
        BOX.delete(sweep.op(), box.native_id, box)
    assert "durable ($0.00/month)" in str(refused.value)
    assert "waiting costs" in str(refused.value)


def test_what_cells_leave_on_their_way_out_keeps_the_box_from_its_stop(sweep: Sweep) -> None:
    """Nothing was at risk when the stop was allowed. The runner's end is a SIGTERM, on which cells may write."""
    box = sweep.box(teardown=RELEASES)
    pause = run_or_stop.judge(context_of(box), box, full=True)
    assert pause is not None
    assert pause.verdict.way == "nothing-at-risk"
    left = sweep.root(box) / "scratch" / "last-words.bin"
    left.write_bytes(b"x" * 30)
    paths = dict(box.teardown.paths)
    with pytest.raises(SweepstackError, match=r"was not stopped, .* on their way out its cells left 1 file"):
        stop_box(pause, paths, price_after=0.03, wait=Wait(30), say=print)
    assert left.exists()
    assert sweep.platform.get(box.native_id, box.account).phase is Phase.RUNNING
    left.unlink()
    record = stop_box(pause, paths, price_after=0.03, wait=Wait(30), say=print)
    assert record.phase is Phase.STOPPED


def test_an_open_teardown_says_what_still_bills(sweep: Sweep) -> None:
    box = sweep.box()
    sweep.store.write_teardown(Teardown(native_ids=(box.native_id,), begun_at=datetime.now(UTC)))
    with pytest.raises(SweepstackError, match=r"still there: local-[a-z2-7]+, \$0\.50/h\); nothing new is started"):
        sweep.box("box-1")


def test_a_box_that_ends_its_own_bill_may_be_off_since_it_was_last_seen(sweep: Sweep) -> None:
    by_itself = RELEASES | {"stop": {**RELEASES["stop"], "issue": {"by": "ssh", "native": "off", "command": "off"}}}  # type: ignore[dict-item]
    box = sweep.anew().trained()
    armed = box.model_validate(box.model_dump() | {"teardown": by_itself, "when_done": "stop"})
    sweep.verified(box)
    BOX.read(sweep.op(), box.native_id, armed)
    assert "CLOCK" not in sweep.said.warnings, "it answers"
    (sweep.platform_root / "boxes").rename(sweep.platform_root / "hidden")
    try:
        BOX.read(sweep.op(), box.native_id, box)
        assert "CLOCK" not in sweep.said.warnings, "nobody asked it to"
        BOX.read(sweep.op(), box.native_id, armed)
    finally:
        (sweep.platform_root / "hidden").rename(sweep.platform_root / "boxes")
    assert "CLOCK released, had it gone off when it was last seen, in 14 d 23 h (20" in sweep.said.warnings


def test_a_stop_that_no_command_made_is_dated_by_the_last_sign_of_the_box(sweep: Sweep) -> None:
    """It stopped itself after its last line and before this look, so its platform may release it sooner."""
    box = sweep.box(teardown=RELEASES)
    for entry in (sweep.store.root / "records" / "ledger").iterdir():
        entry.unlink()
    made = datetime.now(UTC) - timedelta(days=14)
    box = box.model_copy(update={"created_at": made, "phase": "running"})
    record_phase(
        sweep.store, box=box.name, native_id=box.native_id, platform="local", account=box.account,
        phase="running", price_per_hour=0.5, at=made,
    )  # fmt: skip
    sweep.platform.stop(box.native_id, box.account)
    BOX.read(sweep.op(), box.native_id, box)
    (entry,) = [one for one in sweep.store.ledger(box.native_id)[0] if one.phase == "stopped"]
    assert entry.how == FOUND_STOPPED
    assert "box box-0: CLOCK released, had it gone off when it was last seen, in " in sweep.said.warnings


@pytest.mark.parametrize(("said", "counted"), [(0.0033, 0.0033), (None, 0.03)])
def test_a_stop_of_ours_is_counted_at_what_the_platform_says(sweep: Sweep, said: float | None, counted: float) -> None:
    """The profile's price is for platforms that name none: on RunPod and vast.ai it has none to give."""

    class Says(LocalPlatform):
        def get(self, native_id: str, account: str) -> BoxRecord:
            return replace(super().get(native_id, account), stopped_per_hour=said)

    box = sweep.box(teardown=RELEASES)
    context = BoxContext(context_of(box).facts, "local", platform=Says(default_root()))
    stopping = box.model_copy(update={"want": "stopped"})
    record = run_or_stop.converge(sweep.op(), context, stopping)
    assert record.phase is Phase.STOPPED
    (entry,) = [one for one in sweep.store.ledger(box.native_id)[0] if one.phase == "stopped"]
    assert entry.price_per_hour == counted
    assert f"bills ${counted:g}/h until" in sweep.said.infos
    found = spent(sweep.store, datetime.now(UTC))
    assert found.complete
    assert found.usd > 0
