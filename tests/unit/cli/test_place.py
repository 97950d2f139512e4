"""What `sweepctl place` chooses, and what it leaves as it was in the file."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.balance import BalanceLeft
from sweepstack.cli.commands import place as place_command
from sweepstack.cli.commands.place import candidates, place, print_offers
from sweepstack.cli.output import Out
from sweepstack.config.edit.stack_file import APPROVED, PLACED, StackFile
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import No, Unreachable, Unsure
from sweepstack.onbox.host.offers import Offer
from sweepstack.operations.market import Choice, Market, MarketChoice, Records, as_placement, choose
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.common import redact
from sweepstack.profiles.words import remembered
from tests.unit.config.helpers import GOOD, write

TEXT = GOOD.replace("    max_price: 2.10\n", "").replace(
    '        gpu: {name: [A100, H100], count: 1, memory: 40GB+, cuda: "12.4+"}\n', ""
)
NOWHERE = {"platform": "local", "boxes": {}, "at": "2026-11-21T12:00:00Z"}
BOXES = TEXT.replace("boxes: {box-0: {want: running}}", "boxes: {a: {}, b: {}}")

ENGINE = """\
#!/bin/sh
if [ "$1" = whoami ]; then echo '{"user": "ada", "url": "file:///nowhere"}'; exit; fi
echo "error: no stack named 'x' found" >&2
exit 255
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stack has no state yet."""
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nstackConfigDir: stacks\nruntime: python\n")
    launcher = tmp_path / "pulumi"
    launcher.write_text(ENGINE)
    launcher.chmod(0o755)
    monkeypatch.setattr("sweepstack.status.engine.call.find_engine", lambda: str(launcher))


def config(root: Path, text: str = BOXES) -> StackConfig:
    write(root, text)
    return StackConfig.load(root, "x", ("local", "other", "third"))


def offer(key: str, price: float, *, single: bool = False) -> Offer:
    return Offer(key, "A100", 1, price, "US", single=single)


def market(name: str, *offers: Offer, refusals: tuple[str, ...] = ()) -> Market:
    return Market(name, list(refusals), {"a": list(offers), "b": list(offers)})


def keys(choice: Choice | None) -> dict[str, str]:
    assert choice is not None
    return {box: offer.key for box, offer in choice.offers.items()}


def test_the_first_candidate_that_has_something_for_every_box(tmp_path: Path) -> None:
    markets = [
        market("local", refusals=("no GPUs",)),
        market("other", offer("only", 0.5, single=True)),
        market("third", offer("x", 1.0), offer("y", 2.0)),
    ]
    assert keys(choose(config(tmp_path), markets, next_one=False)) == {"a": "x", "b": "x"}


def test_a_single_offer_goes_to_one_box(tmp_path: Path) -> None:
    markets = [market("other", offer("m1", 0.5, single=True), offer("m2", 0.6, single=True), offer("m3", 0.7))]
    assert keys(choose(config(tmp_path), markets, next_one=False)) == {"a": "m1", "b": "m2"}


def test_where_too_little_is_left_the_boxes_are_named(tmp_path: Path) -> None:
    choice = choose(config(tmp_path), [market("other", offer("m1", 0.5, single=True))], next_one=False)
    assert choice is not None
    assert choice.lacking == ("b",)
    assert choose(config(tmp_path), [market("local")], next_one=False) is not None
    assert choose(config(tmp_path), [market("local", refusals=("no",))], next_one=False) is None


def test_next_goes_behind_the_present_choice_and_on_to_the_next_candidate(tmp_path: Path) -> None:
    markets = [market("local", offer("x", 1.0), offer("y", 2.0)), market("other", offer("z", 3.0))]
    text = BOXES.replace("candidates: [local]", "candidates: [local, other]")

    def placed(key: str) -> StackConfig:
        block = "{platform: local, at: 2026-11-21T12:00:00Z, boxes: {a: {offer: KEY, price_per_hour: 1}}}"
        return config(tmp_path, text.replace("    boxes:", f"    placement: {block.replace('KEY', key)}\n    boxes:"))

    assert keys(choose(placed("x"), markets, next_one=True)) == {"a": "y", "b": "y"}
    assert keys(choose(placed("y"), markets, next_one=True)) == {"a": "z", "b": "z"}
    assert keys(choose(placed("gone"), markets, next_one=True)) == {"a": "x", "b": "x"}


def test_the_block_is_written_like_a_lock_file_and_taken_out_again(tmp_path: Path) -> None:
    made = config(tmp_path)
    file = StackFile.locate(tmp_path, "x")
    before = file.path.read_text()
    choice = Choice("local", {"a": offer("12345", 1.25), "b": offer("on", 1.5)})
    placement = as_placement(choice, made, {})
    assert file.write_placement(placement)
    assert not file.write_placement(placement)
    text = file.path.read_text()
    assert text.startswith(before.removesuffix("encryptionsalt: v1:abc\n"))
    assert PLACED in text
    again = StackConfig.load(tmp_path, "x", ("local",))
    assert again.placement is not None
    assert again.placement.boxes["a"].offer == "12345"
    assert again.placement.boxes["b"].price_per_hour == 1.5
    assert file.write_placement(None)
    assert file.path.read_text() == before


def test_a_placement_beside_an_approval_changes_no_byte_of_it(tmp_path: Path) -> None:
    write(tmp_path, BOXES.replace("encryptionsalt", f'    {APPROVED}\n    approval: {{by: "me"}}\nencryptionsalt'))
    file = StackFile.locate(tmp_path, "x")
    before = file.path.read_text()
    file.write_placement(NOWHERE)
    assert file.path.read_text().startswith(before.removesuffix("encryptionsalt: v1:abc\n"))
    file.write_placement(None)
    assert file.path.read_text() == before


def test_flow_style_stays_flow_style(tmp_path: Path) -> None:
    path = write(tmp_path, 'config: {"sweepstack:sweep": {job: {}}}   # as it is\n')
    before = path.read_text()
    file = StackFile.locate(tmp_path, "x")
    assert file.write_placement(NOWHERE)
    placed = 'placement: {platform: local, boxes: {}, at: "2026-11-21T12:00:00Z"}'
    assert path.read_text() == before.replace("{job: {}", f"{{job: {{}}, {placed}")
    assert file.write_placement(None)
    assert path.read_text() == before


def test_on_this_machine_the_price_is_what_the_person_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    write(tmp_path, BOXES)
    target = Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))
    found: dict[str, Any] = {"next_one": False, "show": False, "clear": False}
    assert place(target, Out(as_json=False), **found) == 0
    said = capsys.readouterr().out
    assert "local" in said
    assert "0.120" in said
    assert "next   pulumi preview --stack x" in said
    assert StackConfig.load(tmp_path, "x").placement is not None
    dear = BOXES.replace("    boxes:", "    max_price: 0.05\n    boxes:")
    write(tmp_path, dear)
    with pytest.raises(No, match="nothing that fits"):
        place(target, Out(as_json=False), **found)
    assert "refused  local: costs $0.12/h a box, above max_price $0.05/h" in capsys.readouterr().out
    assert target.file.path.read_text() == dear


def test_what_the_balance_does_not_carry_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two boxes at $0.12/h: nothing is measured yet, so the margin of one hour must be there."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    write(tmp_path, BOXES)
    target = Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))
    found: dict[str, Any] = {"next_one": False, "clear": False}

    def left(usd: float | None) -> None:
        monkeypatch.setattr(
            place_command, "left_at", lambda adapter: BalanceLeft(adapter, usd, True, 0.06, why="no answer")
        )

    left(0.2)
    with pytest.raises(No, match="boxes a, b: not rented, since the balance does not carry them") as caught:
        place(target, Out(as_json=False), show=False, **found)
    assert "lasts 0.7 h" in str(caught.value)
    assert target.file.path.read_text() == BOXES
    assert place(target, Out(as_json=True), show=True, **found) == 0
    capsys.readouterr()
    left(None)
    assert place(target, Out(as_json=False), show=False, **found) == 0, "what can't be asked is no refusal"
    assert "balance  unknown at local" in capsys.readouterr().out
    left(0.2)
    write(tmp_path, BOXES.replace("    boxes:", "    ignore_balance: a card is on file\n    boxes:"))
    assert place(target, Out(as_json=False), show=False, **found) == 0
    assert "placed all the same, since ignore_balance says: a card is on file" in capsys.readouterr().out


def test_a_platform_is_introduced_at_its_first_place_and_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor to a program, which would use it up."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("RUNPOD_API_KEY", "violet-umbrella-77")
    redact.learn({"RUNPOD_API_KEY": "violet-umbrella-77"}, of="runpod")
    known = config(tmp_path)
    markets = [market("runpod", offer("x", 1.0)), market("vastai", refusals=("no answer",))]
    seen = MarketChoice(known, {}, markets, choose(known, [market("local", offer("x", 1.0))], next_one=False))
    monkeypatch.setattr(place_command, "look_once", lambda *_, **__: seen)
    target = Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))

    def said(*, as_json: bool) -> str:
        place(target, Out(as_json=as_json), next_one=False, show=True, clear=False)
        return capsys.readouterr().out

    assert "first contact" not in said(as_json=True)
    first = said(as_json=False)
    for name in ("runpod", "vastai"):
        assert f"sweepctl profile show {name}" in first
    assert "trap RP1: " in first
    assert "first contact" not in said(as_json=False)
    assert remembered("runpod") == {"credentials": ["RUNPOD_API_KEY"]}
    assert remembered("vastai") == {}, "it did not answer"


@pytest.mark.parametrize(("price", "kept"), [(0.30411, 0.3042), (0.3, 0.3), (0.1 + 0.2, 0.3), (0.00001, 0.0001)])
def test_what_is_written_is_never_below_the_price_of_the_offer(tmp_path: Path, price: float, kept: float) -> None:
    """It is the most that `up` pays: rounded down, it refused the offer that it names (seen on vast.ai, whose price has
    the disk's in it)."""
    choice = Choice("local", {"a": offer("x", price)})
    assert as_placement(choice, config(tmp_path), {})["boxes"]["a"]["price_per_hour"] == kept


def test_a_platform_that_is_asked_for_two_groups_of_boxes_is_listed_once() -> None:
    """`boxes: {a: {on: local}}` with `candidates: [local]`: local is asked for box a, and for those without `on`."""
    groups = [
        Market("local", offers={"a": [offer("x", 1.0)]}),
        Market("other", refusals=["down"]),
        Market("local", offers={"b": [offer("y", 2.0)]}),
        Market("other", refusals=["down"]),
    ]
    first, second = candidates(groups)
    assert {box: [one["key"] for one in offers] for box, offers in first["offers"].items()} == {"a": ["x"], "b": ["y"]}
    assert (second["platform"], second["refusals"], second["offers"]) == ("other", ["down"], {})


def test_the_end_of_a_host_s_contract_is_shown_beside_the_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = config(tmp_path, BOXES.replace("    boxes:", "    budget: {hours: 100}\n    boxes:"))
    early, late = (datetime.now(UTC) + timedelta(hours=hours) for hours in (2.5, 60.5))
    chosen = [replace(offer("x", 1.0), ends_at=early), replace(offer("y", 1.0), ends_at=late)]
    print_offers(
        [market("vastai", *chosen)], Choice("vastai", dict(zip("ab", chosen, strict=True))), known, Out(as_json=False)
    )
    said = " ".join(capsys.readouterr().out.split())
    assert f"ends a: its host's contract ends {early:%Y-%m-%d %H:%M} UTC, in 2 h 29 min, before the 50 h that" in said
    assert f"ends b: its host's contract ends {late:%Y-%m-%d %H:%M} UTC, in 2 d 12 h" in said


def test_a_candidate_without_its_key_is_what_next_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other constraints, and a wait, would change nothing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    rented = "candidates: [runpod]\n    budget: {usd: 60}\n    when_done: stop\n    lease: 2h"
    write(tmp_path, BOXES.replace("candidates: [local]", rented))
    target = Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))
    with pytest.raises(No, match="no candidate could be asked: runpod took no key") as caught:
        place(target, Out(as_json=False), next_one=False, show=True, clear=False)
    assert caught.value.next == ["sweepctl doctor --stack x    (which key runpod lacks, and where it goes)"]


def silent(platform: str) -> Market:
    error = Unreachable("no route")
    return Market(platform, refusals=[str(error)], error=error)


@pytest.mark.parametrize(
    ("seen", "kind", "words"),
    [
        ([silent("vastai")], Unsure, "no candidate could be asked: vastai gave no answer"),
        (
            [silent("vastai"), Market("runpod", refusals=["no spot"])],
            Unsure,
            "no candidate could be asked: vastai gave",
        ),
        ([silent("vastai"), Market("runpod")], Unsure, "as far as is known: vastai gave no answer"),
        ([Market("runpod")], No, "nothing that fits can be had now; "),
    ],
)
def test_a_candidate_that_gave_no_answer_is_not_one_without_an_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Market], kind: type[No], words: str
) -> None:
    seen_once = MarketChoice(config(tmp_path), {}, seen, None)
    target = Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))
    monkeypatch.setattr(place_command, "read_records", lambda _target: Records(None, []))
    monkeypatch.setattr(place_command, "look_once", lambda *_, **__: seen_once)
    with pytest.raises(No, match=words) as caught:
        place(target, Out(as_json=False), next_one=False, show=False, clear=False)
    assert type(caught.value) is kind
