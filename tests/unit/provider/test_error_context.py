"""Errors of a platform, as a person reads them: what may bill, and what to type."""

from __future__ import annotations

from typing import Any

import pytest

from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.errors import InsufficientFunds, PlatformError, RateLimited, StillCreating, Unreachable
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.provider.resources.error_context import became, naming
from tests.unit.provider.support import BOX, Sweep, still_creating


def raising(error: Exception) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


def test_an_outage_names_the_box_that_may_bill(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = sweep.box()
    monkeypatch.setattr(LocalPlatform, "get", raising(Unreachable("it gave no usable answer. Try again")))
    with pytest.raises(Unreachable) as told:
        BOX.create(sweep.op(), sweep.box_inputs())
    words = str(told.value)
    assert words.startswith("box box-0: it gave no usable answer")
    assert f"{box.native_id} on local may bill $0.50/h" in words
    assert words.endswith("Next: pulumi up --stack sweep-t")
    assert "nothing was launched" not in words
    birth = sweep.store.births()[0]
    sweep.store.write_birth(birth.model_copy(update={"launch_by": birth.begun_at}))
    with pytest.raises(Unreachable, match=r"may bill \$0.50/h since .* UTC, and nothing was launched on it\. Next"):
        BOX.create(sweep.op(), sweep.box_inputs())


def test_an_outage_names_the_tag_of_what_an_earlier_try_may_have_rented(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlatform, "create", raising(PlatformError("cut off")))
        with pytest.raises(PlatformError):
            sweep.box()
    birth = sweep.store.births()[0]
    monkeypatch.setattr(LocalPlatform, "find_by_tag", raising(Unreachable("no answer")))
    with pytest.raises(Unreachable, match=r"box box-0: no answer\. Next"):
        sweep.box()  # nothing was asked for
    sweep.store.write_birth(birth.model_copy(update={"asked_at": birth.begun_at}))
    with pytest.raises(Unreachable, match=r"carries the tag sweepstack-\S+-box-0-g1 and would bill \$0.50/h"):
        sweep.box()


def test_a_refusal_that_rented_nothing_claims_no_bill(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPlatform, "create", raising(InsufficientFunds("top it up")))
    with pytest.raises(InsufficientFunds) as told:
        sweep.box()
    assert str(told.value) == "box box-0: top it up. Next: pulumi up --stack sweep-t"


def test_words_that_say_it_all_are_left_alone(sweep: Sweep) -> None:
    evidence = sweep.identity.evidence
    whole = "box box-0: gone. Next: sweepctl place --stack sweep-t"
    with pytest.raises(RateLimited) as told, naming(sweep.op(), Evidence(evidence), "box-0"):
        raise RateLimited(whole, 3.0)
    assert str(told.value) == whole
    with pytest.raises(StillCreating) as late, naming(sweep.op(), Evidence(evidence), "box-0"):
        raise StillCreating("id", {"native_id": "id"}, [whole, "it boots"])
    assert late.value.reasons == [whole, "box box-0 (id): it boots. Next: pulumi up --stack sweep-t"]
    assert late.value.outputs == {"native_id": "id"}


def test_a_box_that_stays_unready_is_named_with_the_next_command(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_DRILL_BOOT_SECONDS", "60")
    late = still_creating(lambda: sweep.box(timeout=0.2))
    box = sweep.box_inputs()
    from sweepstack.core.resources import BoxState

    state = BoxState(**box.model_dump(), **{k: v for k, v in late.outputs.items() if k not in box.model_dump()})
    again = still_creating(lambda: BOX.update(sweep.op(timeout=0.2), late.identifier, state, box))
    assert late.identifier in again.reasons[0]
    assert "Next: pulumi up --stack sweep-t" in again.reasons[0]


def test_what_stays_locked_is_no_change() -> None:
    """It said "a: locked → locked (…)"."""
    assert became("locked", "locked (the receipt is old)") == "locked (the receipt is old)"
    assert became("locked", "cleared by receipt x") == "locked → cleared by receipt x"
    assert became("cleared by receipt x", "locked") == "cleared by receipt x → locked"
