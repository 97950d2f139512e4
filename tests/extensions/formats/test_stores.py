"""What a `.metadata` of PyTorch's distributed checkpoints may say, and what it can't do."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from sweepstack.extensions.formats.stores import _check_names
from sweepstack.loaders.base import PlainSpec, Unreadable
from sweepstack.loaders.load import load

SETS_NAME = b"\x80\x02cpathlib\n%s\n(N}X\x04\x00\x00\x00nameX\x01\x00\x00\x00xstb."
"""The class itself, for which a state is set: (None, {"name": "x"})."""


@pytest.mark.parametrize("name", [b"PosixPath", b"PurePosixPath"])
def test_no_class_is_changed_for_the_files_that_are_read_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.setattr(PurePosixPath, "name", PurePosixPath.name)  # put back where the test fails
    (tmp_path / ".metadata").write_bytes(SETS_NAME % name)
    result = load(f"{tmp_path}/", PlainSpec("dcp"), members=(".metadata",))
    assert result.reasons == ("has a .metadata that does not read (TypeError)",)
    assert (Path("/a/b").name, PurePosixPath("/a/b").name) == ("b", "b")


def test_a_name_is_that_of_its_path() -> None:
    _check_names({"model.0.bias": ("model", "0.bias"), "optimizer.state.0": ("optimizer", "state", 0)})
    _check_names(None)  # of a planner that writes none
    _check_names({"model": "as another planner has it"})
    with pytest.raises(Unreadable, match=r"model\.1\.bias has another path"):
        _check_names({"model.1.bias": ("model", "0.bias")})
