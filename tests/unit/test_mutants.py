"""The catalogue of mutants fits the code as it is: a patch that no longer does proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.model import Mutant

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_fits_once_and_a_test_is_there_to_notice(mutant: Mutant) -> None:
    assert mutant.patches
    assert mutant.caught_by
    for patch in mutant.patches:
        patch.text(ROOT)
    for test in mutant.caught_by:
        path, name = test.split("[")[0].rsplit("::", 1)
        assert f"def {name}(" in (ROOT / path).read_text(), test
