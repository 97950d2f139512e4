"""Each mutant is noticed by the tests that are named for it. `python -m tests.mutants` prints the same as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import grow, survivors
from tests.mutants.catalogue import MUTANTS
from tests.mutants.model import Mutant


@pytest.mark.proof
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    assert grow(mutant, tree) == ""
    passed, odd = survivors(mutant, tree)
    assert odd == ""
    assert passed == [], "it survived these"
