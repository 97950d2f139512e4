"""What a person may write: any stack config loads or is refused by a message that names the file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Abandonment, Action, Approval, Waiver
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from tests.fuzz.damage import JSON, touched, tried
from tests.unit.config.helpers import GOOD, write

PATHS = [
    "job",
    "job.run",
    "job.workdir",
    "job.resources",
    "job.resources.gpu.memory",
    "job.env",
    "cells",
    "cells.grid",
    "cells.grid.lr",
    "cells.list",
    "cells.add",
    "cells.base",
    "cells.exclude",
    "artifacts",
    "artifacts.best.pt",
    "metrics",
    "candidates",
    "max_price",
    "boxes",
    "boxes.box-0",
    "pull_to",
    "overrides",
    "mounts",
    "budget",
    "secrets",
    "approval",
]
NAMES = st.sampled_from(
    ["seed", "lr", "a", "A", "x y", "../x", "", "é", "é", "con", "name", "out", "0", "-", "a" * 200]
)
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=True) | st.text(max_size=8) | NAMES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project; examples overwrite its one stack config."""
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nstackConfigDir: stacks\n")
    (tmp_path / "examples" / "digits").mkdir(parents=True)
    (tmp_path / "examples" / "digits" / "train.py").write_text("")
    return tmp_path


def loaded(root: Path, text: str) -> StackConfig | SweepstackError:
    """The config, or the refusal, which names the file."""
    write(root, text)
    found = tried(StackConfig.load, root, "x")
    if isinstance(found, SweepstackError):
        assert isinstance(found, ConfigError)
        assert "Pulumi.x.yaml" in str(found), found
    return found


def dumped(document: Any) -> str:
    return str(yaml.safe_dump(document, sort_keys=False, default_flow_style=None))


def put(document: Any, path: str, value: Any) -> str:
    """The good config with another value at a path."""
    at = document["config"]["sweepstack:sweep"]
    *way, last = path.split(".") if not path.startswith("artifacts.") else ["artifacts", path.partition(".")[2]]
    for key in way:
        at = at.setdefault(key, {})
    at[last] = value
    return dumped(document)


@given(bad=touched(GOOD.encode()))
def test_any_accident_to_the_text(root: Path, bad: bytes) -> None:
    (root / "stacks").mkdir(exist_ok=True)
    (root / "stacks" / "Pulumi.x.yaml").write_bytes(bad)
    found = tried(StackConfig.load, root, "x")
    assert isinstance(found, StackConfig | ConfigError)


KEYED = st.dictionaries(VALUES, VALUES | st.dictionaries(VALUES, VALUES, max_size=2), max_size=3)


@example(path="candidates", value=[None])  # found by the deep profile: a TypeError
@example(path="boxes", value={None: {"want": "running"}})
@example(path="artifacts", value={1: {"load": "json"}})
@given(path=st.sampled_from(PATHS), value=JSON | VALUES | KEYED | st.lists(VALUES | KEYED, max_size=3))
def test_any_value_anywhere(root: Path, path: str, value: Any) -> None:
    loaded(root, put(yaml.safe_load(GOOD), path, value))


@given(
    grid=st.dictionaries(NAMES, st.lists(VALUES, max_size=4), max_size=3),
    listed=st.lists(st.dictionaries(NAMES, VALUES, max_size=3), max_size=4),
    base=st.dictionaries(NAMES, VALUES, max_size=2),
)
def test_any_cells_have_names_of_their_own(
    root: Path, grid: dict[str, Any], listed: list[dict[str, Any]], base: dict[str, Any]
) -> None:
    """No two cells of an accepted roster are one to some file system, and no name leads elsewhere."""
    for cells in ({"grid": grid, "base": base}, {"list": listed, "base": base}, {"grid": grid, "add": listed}):
        found = loaded(root, put(yaml.safe_load(GOOD), "cells", cells))
        if isinstance(found, StackConfig):
            names = [cell.name for cell in found.roster.cells]
            assert names
            assert len({name.casefold() for name in names}) == len(names)
            assert all(name == Path(name).name and name not in (".", "..") for name in names)


REASONS = st.text(min_size=1, max_size=40)
APPROVALS = st.builds(
    lambda boxes, waive, abandon, by, hours: Approval(
        receipt="sha256:" + "a" * 64,
        actions=tuple(Action(verb="destroy", box=box, native_id=f"local-{box}") for box in sorted(boxes)),
        waive=waive,
        abandon=abandon,
        waivers_digest=Approval.digest_waivers(waive, abandon),
        by=by,
        at=datetime(2026, 11, 21, tzinfo=UTC),
        expires=datetime(2026, 11, 21, tzinfo=UTC) + timedelta(hours=hours),
    ),
    st.sets(st.sampled_from(["box-0", "box-1", "a"]), max_size=3),
    st.lists(st.builds(Waiver, cell=st.text(max_size=9), reason=REASONS), max_size=2).map(tuple),
    st.lists(st.builds(Abandonment, box=st.text(max_size=9), native_id=REASONS, reason=REASONS), max_size=2).map(tuple),
    st.text(max_size=20),
    st.integers(1, 1000),
)
COMMENTS = st.sampled_from(["", "# mine\n", "\n\n", "    # odd\n", "x: {a: 1}\n"])


@given(approval=APPROVALS, second=APPROVALS, comment=COMMENTS, windows=st.booleans())
def test_approval_goes_in_and_out_of_the_file(
    root: Path, approval: Approval, second: Approval, comment: str, windows: bool
) -> None:
    """It reads back as it was given, whatever the reason says; taken out, the file is byte for byte as before."""
    text = (comment + GOOD + comment).replace("\n", "\r\n" if windows else "\n")
    path = write(root, "")
    path.write_bytes(text.encode())
    file = StackFile.locate(root, "x")
    if isinstance(tried(file.write_approval, approval), SweepstackError):
        assert path.read_bytes() == text.encode()
        return
    assert file.approval() == approval
    if not isinstance(tried(file.write_approval, second), SweepstackError):
        assert file.approval() == second
    file.write_approval(None)
    assert path.read_bytes() == text.encode()
    assert file.approval() is None


REQUIRED = {name for name, field in Approval.model_fields.items() if field.is_required()}


@st.composite
def blocks(draw: st.DrawFn) -> Any:
    """What may stand below `approval`: anything, or a good one with one key taken out, put in or replaced."""
    if draw(st.booleans()):
        return draw(JSON | st.dictionaries(st.sampled_from(sorted(Approval.model_fields)), JSON, max_size=8))
    block = draw(APPROVALS).model_dump(mode="json")
    key = draw(st.sampled_from(sorted(Approval.model_fields)))
    match draw(st.sampled_from(["as it is", "out", "in", "replaced"])):
        case "out":
            block.pop(key, None)
        case "in":
            block[f"{key}s"] = draw(JSON)
        case "replaced":
            block[key] = draw(JSON | st.integers(0, 2**40))
    return block


def says(block: Any, approval: Approval) -> bool:
    """Whether the block is this approval, key for key and nothing read into it."""
    if not isinstance(block, dict) or not REQUIRED <= set(block) <= set(Approval.model_fields):
        return False
    read = approval.model_dump(mode="json") | {"unclaimed": [u.model_dump() for u in approval.unclaimed]}
    for key in ("at", "expires"):
        if not isinstance(block[key], str) or datetime.fromisoformat(block[key]) != getattr(approval, key):
            return False
    return all(read[key] == value for key, value in block.items() if key not in ("at", "expires"))


TIME = {"receipt": None, "actions": [], "waivers_digest": Approval.digest_waivers((), ()), "by": "me"}


@example(block={**TIME, "at": 3, "expires": 99_999_999_999})  # was a yes for three thousand years
@given(block=blocks())
def test_any_approval_in_the_file(root: Path, block: Any) -> None:
    """Malformed is a mistake in a file, never a yes: and `revoke` takes it out."""
    path = write(root, put(yaml.safe_load(GOOD), "approval", block))
    file = StackFile.locate(root, "x")
    found = tried(file.approval)
    if isinstance(found, Approval):
        assert says(block, found)
    else:
        assert isinstance(found, ConfigError) if block is not None else found is None
    loaded(root, path.read_text())
    if not isinstance(tried(file.write_approval, None), SweepstackError):
        assert "approval" not in file.sweep()
