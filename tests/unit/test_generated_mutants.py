"""What the rules for generated mutants make of a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mutants import generate

SOURCE = """
class Box:
    @property
    def may_end(self) -> bool:
        if self.gone == 1:
            return True
        raise ValueError(self.gone)

    def cells(self) -> list[str]:
        return [self.gone]

    def nothing(self) -> None:
        return None
"""


class _Box:
    gone = 1


def test_comparisons_returns_and_errors_change_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "box.py").write_text(SOURCE)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    mutants = generate.of_file(tmp_path / "box.py")
    assert [(one.function, one.what) for one in mutants] == [
        ("Box.may_end", "go on instead of `raise ValueError(self.gone)`"),
        ("Box.may_end", "turn `self.gone == 1` round"),
        ("Box.may_end", "return not True for `True`"),
        ("Box.cells", "return [] for `[self.gone]`"),
    ]
    answers = []
    for mutant in mutants:
        scope: dict[str, Any] = {}
        exec(f"def {mutant.function.rpartition('.')[2]}(self): pass", scope)
        function = scope[mutant.function.rpartition(".")[2]]
        function.__code__ = generate.function_of(mutant)
        try:
            answers.append(function(_Box()))
        except ValueError:
            answers.append("raised")
    assert answers == [True, "raised", False, []]
