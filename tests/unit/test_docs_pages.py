"""A page of the docs is named so that a person can open it: its file in a checkout, its address where a wheel is."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from sweepstack.core import paths
from sweepstack.core.version import VERSION

ROOT = Path(__file__).parents[2]
PAGE = re.compile(r"docs/[a-z-]+\.md")
IN_A_CHECKOUT = {"sweepstack/extensions/authoring/gotcha_patch.py"}
"""It edits the page of a checkout, and refuses elsewhere."""


def test_messages_name_pages_by_the_one_function() -> None:
    """All texts but docstrings, in which a reader of the code is meant."""
    found = []
    for path in (file for name in ("sweepstack", "components") for file in sorted((ROOT / name).rglob("*.py"))):
        text = path.read_text()
        if not PAGE.search(text):
            continue
        tree = ast.parse(text)
        notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{place}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes
            if PAGE.search(node.value) and (place := str(path.relative_to(ROOT))) not in IN_A_CHECKOUT
        ]
    assert [one for one in found if not one.startswith("sweepstack/extensions/pipelines/from_templates.py")] == []


def test_an_installed_project_is_given_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f"{urls['Repository']}/blob/v{VERSION}/docs" == paths.DOCS_URL
    monkeypatch.setattr(paths, "installed", lambda: True)
    assert paths.docs_page("renting.md#spot-boxes") == f"{paths.DOCS_URL}/renting.md#spot-boxes"


def test_each_page_that_is_named_is_there() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "sweepstack").rglob("*.py"))
    named = set(re.findall(r"docs_page\(['\"]([a-z-]+\.md)(#[a-z-]+)?", code))
    assert len(named) > 10
    for page, anchor in sorted(named):
        text = (ROOT / "docs" / page).read_text()
        heads = {
            re.sub(r"[^a-z0-9 _-]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)
        }
        assert not anchor or anchor[1:] in heads, f"{page}{anchor}"
