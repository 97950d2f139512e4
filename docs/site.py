"""A hook of mkdocs (mkdocs.yml): the site has the pages at the paths that they have in the repository.

So a link is written once, for a reader on the forge and for one on the site. What pages link that is no page
(a stack file, a script) is copied as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/*/README.md", "profiles/*.md", "tests/engine/*.md")
REGISTRY = ("docs/_index.md", "docs/installation-configuration.md")
"""What Pulumi's registry shows, in its form: another site."""
LINKED = ("LICENSE", "docs/*.ipynb", "docs/*.png", "docs/*.svg", "stacks/*.yaml", "tests/week/own_project/*.py")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site in place of those of docs/; the theme's own stay. Fills the folders of the menu."""
    paths = sorted({path for part in (*PAGES, *LINKED) for path in ROOT.glob(part)})
    names = [name for path in paths if (name := path.relative_to(ROOT).as_posix()) not in REGISTRY]
    config.nav = [_with_pages(entry, names) for entry in config.nav or []]
    ours = [File.generated(config, name, abs_src_path=str(ROOT / name)) for name in names]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *ours])


def _with_pages(entry: Any, names: list[str]) -> Any:
    """An entry of the menu; one that ends with `/` holds all pages of that folder, its README.md first."""
    if isinstance(entry, dict):
        return {title: _with_pages(below, names) for title, below in entry.items()}
    if isinstance(entry, list):
        return [page for below in entry for page in _listed(_with_pages(below, names))]
    if not entry.endswith("/"):
        return entry
    inside = [name for name in names if name.startswith(entry) and name.endswith(".md")]
    return sorted(inside, key=lambda name: (not name.endswith("README.md"), name))


def _listed(entry: Any) -> list[Any]:
    return entry if isinstance(entry, list) else [entry]
