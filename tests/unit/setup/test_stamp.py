"""The second run does nothing, and only when nothing is to be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.lib import stamp
from scripts.lib.go_tool import ACTIONLINT, YAML_HOST
from scripts.lib.stamp import Stamp, key_of, why_stale
from tests.unit.setup.conftest import Checkout, write_command


@pytest.fixture
def ready(checkout: Checkout) -> Checkout:
    root = checkout.places.root
    for name in ("pyproject.toml", "uv.lock", ".pulumi-version"):
        (root / name).write_text(name)
    (root / "scripts" / "lib").mkdir()
    (root / "scripts" / "engine" / "cli").mkdir(parents=True)
    for path in ("requirements-uv.txt", "lib/main.py", "engine/cli/go.mod", "engine/cli/go.sum"):
        (root / "scripts" / path).write_text(path)
    write_command(checkout.places.bin / "sweepctl", "#!/bin/sh\n")
    for package in ("pytest-8", "scikit_learn-1"):
        site_packages(checkout, package).mkdir(parents=True)
    write_command(ACTIONLINT.binary(checkout.places), "#!/bin/sh\n")
    record(checkout).write(checkout.places.record)
    return checkout


def site_packages(checkout: Checkout, package: str) -> Path:
    return checkout.places.venv / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info"


def record(checkout: Checkout, groups: tuple[str, ...] = ("dev", "examples")) -> Stamp:
    return Stamp(key_of(checkout.places.root), groups, str(checkout.engine), "3.259.0", "modules", offline=False)


def reason(checkout: Checkout, groups: tuple[str, ...] = ("examples",)) -> str | None:
    return why_stale(Stamp.read(checkout.places.record), checkout.places, groups)


def test_nothing_changed_is_current(ready: Checkout) -> None:
    assert reason(ready) is None
    assert reason(ready, ("dev", "examples")) is None
    ACTIONLINT.binary(ready.places).unlink()
    assert reason(ready) is None
    assert reason(ready, ("dev", "examples")) == "actionlint is gone from the cache"


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "uv.lock",
        ".pulumi-version",
        "scripts/launcher",
        "scripts/lib/main.py",
        "scripts/engine/cli/go.mod",
        "scripts/engine/cli/go.sum",
        "scripts/requirements-uv.txt",
    ],
)
def test_every_input_counts(ready: Checkout, name: str) -> None:
    path = ready.places.root / name
    path.write_text(path.read_text() + "\n# changed\n")
    assert reason(ready) == "the lock, the engine's pins or set-up itself changed"


def test_moved_checkout_is_stale(ready: Checkout) -> None:
    elsewhere = ready.places.root.rename(ready.places.root.with_name("moved"))
    assert key_of(elsewhere) != record_key(elsewhere)


def test_a_checkout_that_was_moved_is_called_so(ready: Checkout) -> None:
    """It said "the lock, the engine's pins or set-up itself changed", and nothing of them had."""
    stamp = Stamp.read(ready.places.record)
    assert stamp is not None
    moved = replace(stamp, root="/old/place")
    assert why_stale(moved, ready.places, ("examples",)) == (
        "the checkout was moved here from /old/place, and .venv holds paths of it"
    )
    assert why_stale(replace(stamp, root=str(ready.places.root)), ready.places, ("examples",)) is None


def record_key(root: Path) -> str:
    found = Stamp.read(root / ".venv" / "sweepstack.json")
    assert found is not None
    return found.key


def test_more_groups_are_more_work(ready: Checkout) -> None:
    assert reason(ready, ("examples", "torch")) == "more is wanted: torch"


@pytest.mark.parametrize(
    "break_it",
    [
        lambda checkout: checkout.engine.unlink(),
        lambda checkout: checkout.engine.chmod(0o644),
        lambda checkout: checkout.places.python.unlink(),
        lambda checkout: (checkout.places.python.unlink(), checkout.places.python.symlink_to("/gone/python3")),
        lambda checkout: (checkout.places.bin / "sweepctl").unlink(),
        lambda checkout: site_packages(checkout, "scikit_learn-1").rmdir(),
        lambda checkout: (checkout.places.bin / "pulumi").unlink(),
        lambda checkout: (checkout.places.bin / "pulumi").write_text("#!/bin/sh\n"),
    ],
    ids=[
        "engine gone",
        "engine not executable",
        "python gone",
        "python dangling",
        "sweepctl",
        "uv sync by hand",
        "launcher",
        "edited",
    ],
)
def test_what_the_stamp_promises_must_be_there(ready: Checkout, break_it: Callable[[Checkout], object]) -> None:
    break_it(ready)
    found = reason(ready)
    assert found is not None
    assert "gone" in found


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1}', '{"schema": 1, "groups": 3}'])
def test_damaged_record_is_a_first_run(ready: Checkout, text: str) -> None:
    ready.places.record.write_text(text)
    assert Stamp.read(ready.places.record) is None
    assert reason(ready) == "first run"


def test_record_survives_a_round_trip(ready: Checkout) -> None:
    assert Stamp.read(ready.places.record) == record(ready)


def test_real_inputs_are_all_there() -> None:
    root = Path(__file__).resolve().parents[3]
    missing = [str(path) for path in stamp.inputs(root) if not path.is_file()]
    assert missing == []


def test_a_host_whose_source_changed_is_built_anew(checkout: Checkout) -> None:
    folder = checkout.places.root / "scripts" / YAML_HOST.pins
    folder.mkdir(parents=True)
    found = set()
    for text in ("one", "two"):
        (folder / "main.go").write_text(text)
        found.add(YAML_HOST.binary(checkout.places))
    assert len(found) == 2
