"""What set-up does with `.venv`, beyond what uv does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts.lib import python_env
from scripts.lib.errors import SetupError
from tests.unit.setup.conftest import Checkout

PYPROJECT = '[tool.hatch.build.targets.wheel]\npackages = ["ours"]\n'


@pytest.fixture
def written(checkout: Checkout) -> Checkout:
    (checkout.places.root / "ours").mkdir()
    (checkout.places.root / "pyproject.toml").write_text(PYPROJECT)
    (checkout.places.root / "ours" / "module.py").write_text("VALUE = 1\n")
    return checkout


def test_our_own_modules_are_compiled_where_python_may_not(written: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    python_env.compile_own(written.places)
    ask = "import ours.module as m, os; print(os.path.exists(m.__cached__), m.VALUE)"
    said = subprocess.check_output([sys.executable, "-c", ask], cwd=written.places.root, text=True, env=os.environ)
    assert said == "True 1\n"


def test_a_module_that_is_none_is_named(written: Checkout) -> None:
    (written.places.root / "ours" / "module.py").write_text("VALUE =\n")
    with pytest.raises(SetupError, match=r"ours/module\.py"):
        python_env.compile_own(written.places)
