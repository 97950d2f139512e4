"""`sweepctl ledger --all`: all sweeps of a backend, who rented their boxes, what still bills, and what is not known."""

from __future__ import annotations

import csv
import io
import json
import shutil
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.ledger import record_phase
from sweepstack.core import extensions
from sweepstack.core.records import Birth, Lease
from sweepstack.evidence.location import MARKER
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import name_of_backend
from sweepstack.extensions.answers import all_sweeps
from sweepstack.onbox.common.canonical import sha256_hex
from tests.unit.cli.support import World


def sweep(
    world: World,
    stack: str,
    project: str = "sweepstack",
    *,
    by: str = "",
    hours: float = 2.0,
    price: float | None = 1.0,
) -> EvidenceStore:
    """The evidence of another sweep that this computer remembers: one box, whose bill ended an hour ago."""
    place = world.folder / "elsewhere" / project / stack
    identity = "".join("abcdefghjkmnpqrs"[int(digit, 16)] for digit in sha256_hex(f"{project}/{stack}".encode())[:10])
    store = EvidenceStore.found(f"file://{socket.gethostname()}{place}", identity, project, stack)
    now = datetime.now(UTC)
    begin, end = now - timedelta(hours=hours + 1), now - timedelta(hours=1)
    native_id = f"id-{project}-{stack}"
    store.write_birth(
        Birth(
            box="box-0",
            generation=1,
            tag=f"sweepstack-{identity}-box-0-g1",
            platform="local",
            account="acc",
            native_id=native_id,
            price_per_hour=price,
            begun_at=begin,
            created_at=begin,
            ended_at=end,
            ended_how="destroyed",
            by=by,
        )
    )
    for phase, at in (("running", begin), ("ended", end)):
        record_phase(
            store,
            box="box-0",
            native_id=native_id,
            platform="local",
            account="acc",
            phase=phase,  # type: ignore[arg-type]
            price_per_hour=price,
            at=at,
            how="destroyed" if phase == "ended" else "",
        )
    memory = world.folder / "data" / "sweepstack" / "evidence" / f"{stack}.txt"
    memory.parent.mkdir(exist_ok=True)
    with memory.open("a") as handle:
        handle.write(f"{store.objects.uri}\n")
    return store


BACKEND = "file:///srv/state"


@pytest.fixture(autouse=True)
def backend(world: World) -> None:
    """The engine knows it, and no variable names it: as on a machine on which only `make up` was typed."""
    world.monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    world.on("whoami", f"""echo '{{"url": "{BACKEND}"}}'""")


def ledger(world: World, *more: str) -> Any:
    return world.run("ledger", "--all", *more, stack=None)


def test_all_sweeps_with_who_rented_and_what_goes_on(world: World) -> None:
    """One runs, one was destroyed and its stack removed, one is of another project; a fourth is another backend's."""
    box = world.add("box-0", price=0.5)
    world.store.write_birth(box.birth(by="ann@desk"))
    world.store.write_lease(Lease(backend=name_of_backend(BACKEND), host="h", taken_at=datetime.now(UTC)))
    sweep(world, "old", by="ann@desk", hours=2.0)
    sweep(world, "theirs", "other", by="ben@lab", hours=10.0)
    held = sweep(world, "held", by="ann@desk")
    held.write_lease(Lease(backend="s3://theirs", host="h", taken_at=datetime.now(UTC)))
    found = ledger(world, "--json")
    assert found.code == 0, found
    told = found.json
    rows = {f"{one['project']}/{one['stack']}": one for one in told["sweeps"]}
    assert list(rows) == ["sweepstack/sweep-t", "other/theirs", "sweepstack/old"], "what bills first, then the dearest"
    assert rows["other/theirs"]["usd"] == pytest.approx(10.0, abs=0.01)
    assert rows["sweepstack/old"]["who"] == ["ann@desk"]
    assert (rows["sweepstack/sweep-t"]["billing"], rows["sweepstack/sweep-t"]["per_hour"]) == (1, 0.5)
    assert [(one["who"], one["sweeps"]) for one in told["people"]] == [
        ("ben@lab", ["other/theirs"]),
        ("ann@desk", ["sweepstack/sweep-t", "sweepstack/old"]),
    ]
    assert told["usd"] == pytest.approx(sum(one["usd"] for one in told["people"]))
    assert (told["per_hour"], told["complete"], told["unknown"]) == (0.5, True, [])
    assert told["elsewhere"] == [f"sweepstack/held is not counted: the state in s3://theirs holds it ({held.shown})"]
    shown = ledger(world)
    assert shown.code == 0
    assert f"in 3 sweeps of {name_of_backend(BACKEND)}" in shown.out
    assert "$0.50/h goes on" in shown.out
    assert "ben@lab" in shown.out
    one_sweep = world.run("ledger", "--json").json
    assert rows["sweepstack/sweep-t"]["hours"] == pytest.approx(one_sweep["hours"], abs=0.01), "the same count"


def test_the_table_for_programs_has_each_sweep_with_all_digits(world: World) -> None:
    sweep(world, "old", by="ann@desk", price=1 / 3)
    sweep(world, "older")
    world.stacks("old", "older")
    shown = ledger(world, "--as", "csv")
    assert shown.code == 0, shown
    rows = {row["stack"]: row for row in csv.DictReader(io.StringIO(shown.out))}
    assert float(rows["old"]["usd"]) == pytest.approx(2 / 3, abs=1e-5)
    assert (rows["old"]["who"], rows["older"]["who"]) == ("ann@desk", "not on record")
    assert rows["old"]["saved_usd"] == ""


def test_what_can_not_be_read_is_named_and_no_zero(world: World) -> None:
    """A state that does not read, evidence that does not, a price that is on no record, and a stack without a place."""
    sweep(world, "dear", price=None)
    lost = sweep(world, "lost")
    (file,) = [one for one in lost.root.rglob("*box-0*.json") if "birth" in str(one)]
    file.write_text("{}")
    shown = ledger(world)
    assert shown.code == 2
    assert "unknown  what" in shown.out
    assert "lost cost is not known" in shown.out
    assert "at least $0.00" in shown.out
    assert "nothing in a ledger goes on" in shown.out
    (line,) = [line for line in shown.out.splitlines() if line.startswith("sweepstack/dear")]
    assert "?" in line.split(), "no price is on record: no 0.00"
    world.engine_says("error: could not read the checkpoint")
    broken = ledger(world, "--json")
    assert broken.code == 2
    assert any("the state of sweep-t is not known" in one for one in broken.json["unknown"])
    assert not broken.json["complete"]


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ([], 0),
        ([{"config": {"aws:region": {"value": "x"}}}], 0),
        ([{"config": {"sweepstack:sweep": {"value": "{}"}}}], 2),
        ([{"kind": "destroy"}], 2),
        ("{", 2),
    ],
)
def test_an_empty_state_is_no_proof_that_nothing_was_paid(world: World, history: Any, said: int) -> None:
    """The engine's history tells one that was never up, and one that is no sweep, from one whose evidence is not known
    here."""
    shutil.rmtree(world.evidence)
    (world.engine / "history.json").write_text(json.dumps(history) if history != "{" else "{")
    world.save(world.empty())
    found = world.run("ledger", "--all", "--json", stack=None, fresh=False)
    assert found.code == said, found
    assert any("sweepstack/sweep-t cost is not known" in one for one in found.json["unknown"]) == bool(said)


def test_one_that_does_not_answer_is_named_after_a_bounded_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(world, "old")
    monkeypatch.setattr(all_sweeps, "READ_SECONDS", 0.2)
    monkeypatch.setattr(all_sweeps, "_read", lambda *_: threading.Event().wait(30))
    found = ledger(world, "--json")
    assert found.code == 2
    assert any("did not answer within" in one for one in found.json["unknown"])


def test_a_place_that_was_taken_away_is_no_unknown_and_one_that_does_not_read_is(world: World) -> None:
    """This computer remembers places for ever; of a sweep that is over, the folder may be deleted. It is named."""
    shutil.rmtree(sweep(world, "gone").root)
    torn = sweep(world, "torn")
    (torn.root / MARKER).write_text("{")
    found = ledger(world, "--json")
    assert found.code == 2
    assert ["torn" in one for one in found.json["unknown"]] == [True], found.json["unknown"]
    (line,) = found.json["elsewhere"]
    assert "/gone is not counted" in line


def test_words_that_do_not_go_together_and_a_missing_extension(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words: list[tuple[str, ...]] = [("--as", "csv"), ("--all", "--against-bill"), ("--all", "--as", "csv", "--json")]
    for wrong in words:
        assert world.run("ledger", *wrong, stack=None).code == 2
    monkeypatch.setitem(extensions.ROOTS, "sweepstack.extensions", tmp_path)
    said = ledger(world)
    assert said.code == 2
    assert "`sweepctl ledger --all` belongs to the extension `answers`" in said.err


def test_many_sweeps_are_cut_on_a_screen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_sweeps, "MOST_ROWS", 1)
    for number in range(3):
        sweep(world, f"old-{number}", hours=1.0 + number)
    shown = ledger(world)
    assert "… and 3 more sweeps" in shown.out
    assert shown.out.count("sweepstack/") == 1
