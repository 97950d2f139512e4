"""CONTRIBUTING, "Add a platform", followed in a copy of the repository: the scaffold, a toy platform, the commands.

The commands are those of the page. The toy's boxes are folders of this machine, kept as the local platform keeps its
own; it has no capability besides, so the conformance suite asks of it what it asks of every adapter.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from sweepstack.extensions.authoring.commands.profile import new
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.host import capabilities
from sweepstack.onbox.host.platform import Platform
from sweepstack.profiles.load import mistakes_in

ROOT = Path(__file__).resolve().parents[3]
LEFT_OUT = (".*_cache", ".cache", ".git", ".hypothesis", ".venv")
RENTAL, CLOUD, ADAPTER = "acorn-rental", "toy-cloud", "toy_cloud"
SECONDS = 600.0
OPEN = re.compile(r"TODO of [\d-]+[:,]? ?")

TOY = {
    "sweepstack/platforms/toy_cloud/api.py": '''"""Every call that goes to Toy Cloud: folders of this machine."""

from __future__ import annotations

from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform


def cloud() -> LocalPlatform:
    """All that Toy Cloud rents."""
    return LocalPlatform(default_root().with_name("toy_cloud"), grace=0.3)


def account() -> str:
    """The id of the account at hand."""
    return cloud().account()
''',
    "sweepstack/platforms/toy_cloud/create.py": '''"""Renting a box of Toy Cloud, and waiting until it is ready."""

from __future__ import annotations

from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Wait
from sweepstack.platforms.toy_cloud.api import cloud


def create(request: BoxRequest, wait: Wait) -> BoxRecord:
    """See `Platform.create`."""
    return cloud().create(request, wait=wait)
''',
    "sweepstack/platforms/toy_cloud/power.py": '''"""Ending a box of Toy Cloud, and its bill."""

from __future__ import annotations

from sweepstack.platforms.toy_cloud.api import cloud


def destroy(native_id: str, account: str) -> None:
    """See `Platform.destroy`."""
    cloud().destroy(native_id, account)
''',
    "sweepstack/platforms/toy_cloud/states.py": '''"""What Toy Cloud says of a box, as our records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweepstack.onbox.host.platform import BoxRecord
from sweepstack.platforms.toy_cloud.api import cloud

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


def get(native_id: str, account: str) -> BoxRecord:
    """See `Platform.get`."""
    return cloud().get(native_id, account)


def by_tag(tag: str, account: str = "") -> BoxRecord | None:
    """See `Platform.find_by_tag`."""
    return cloud().find_by_tag(tag, account)


def listed(prefix: str) -> list[BoxRecord]:
    """See `Platform.list_tagged`."""
    return cloud().list_tagged(prefix)


def channel_to(record: BoxRecord) -> Channel:
    """See `Platform.channel`."""
    return cloud().channel(record.native_id, record.account)
''',
    "tests/conformance/harness_toy_cloud.py": '''"""How to break Toy Cloud, and put it right again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.onbox.host.platform import Platform
from sweepstack.platforms.registry import load_platform
from tests.conformance import harness_local


class Harness(harness_local.Harness):
    """See `harness.Harness`. Its boxes lie beside those of the local platform."""

    adapter = "toy_cloud"
    host = False

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        super().__init__(tmp_path, monkeypatch, machines)
        self._root = tmp_path / "sweepstack" / "toy_cloud"

    def connect(self) -> Platform:  # type: ignore[override]
        return load_platform(self.adapter)
''',
    "tests/unit/platforms/test_toy_cloud_platform.py": '''"""The adapter of Toy Cloud by itself."""

from __future__ import annotations

from sweepstack.onbox.host.capabilities import CanStop
from sweepstack.platforms.registry import load_platform


def test_it_can_do_nothing_but_rent() -> None:
    assert not isinstance(load_platform("toy_cloud"), CanStop)
''',
}
"""What a person writes in place of the scaffold's file."""


def section(title: str) -> str:
    """A section of CONTRIBUTING, with what stands below its heading."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    level = re.search(rf"^(#+) {re.escape(title)}", page, re.MULTILINE)
    assert level is not None, f"CONTRIBUTING has no section {title!r}"
    return re.split(rf"^#{{2,{len(level[1])}}} ", page[level.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def commands(title: str, name: str) -> list[str]:
    """The commands that a section has, for a platform of this name."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)
    return [named(line, name) for line in block.splitlines()]


def named(text: str, name: str) -> str:
    return text.replace("ADAPTER", name.replace("-", "_")).replace("NAME", name)


BY_SSH, BY_API = "One more SSH rental", "A platform with an API"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository with what Python has compiled of it, and with this environment as its own."""
    tree = tmp_path / "sweepstack"
    left_out = shutil.ignore_patterns(*LEFT_OUT)
    whole = str(ROOT)  # what tests left in results/ stays; a package of that name goes along
    shutil.copytree(
        ROOT, tree, symlinks=True, ignore=lambda at, names: {*left_out(at, names), *["results"] * (at == whole)}
    )
    (tree / ".venv").symlink_to(sys.prefix)
    return tree


def run(copy: Path, command: str) -> subprocess.CompletedProcess[str]:
    """One command as a shell there runs it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SWEEPSTACK_"))}
    return subprocess.run(
        ["sh", "-c", command],
        cwd=copy,
        env=environment | {"PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def check(copy: Path, left_out: str) -> str:
    """What `make check` runs after set-up, but for the commands that `left_out` matches: these have their own test."""
    recipe = passes(copy, "make --no-print-directory -n check PYTHON=:").splitlines()
    lines = [line for line in recipe if not re.search(left_out, line)]
    assert 0 < len(lines) < len(recipe)
    return " && ".join(lines)


def passes(copy: Path, command: str) -> str:
    """What a command that succeeds printed."""
    result = run(copy, command)
    assert result.returncode == 0, f"{command}\n{result.stdout[-6000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def write_what_is_open(copy: Path) -> None:
    """What the page asks of a person between the first command and the others."""
    for path, text in TOY.items():
        assert (copy / path).is_file(), f"the scaffold writes no {path}"
        (copy / path).write_text(text, encoding="utf-8")
    for path in (f"profiles/{RENTAL}.md", f"profiles/{CLOUD}.md", f"sweepstack/platforms/{ADAPTER}/platform.py"):
        text = (copy / path).read_text("utf-8")
        assert OPEN.search(text)
        (copy / path).write_text(OPEN.sub("", text), encoding="utf-8")


@pytest.mark.proof  # what the commands write, and the page about them, is below
def test_a_toy_platform_is_added_by_the_commands_of_the_page(copy: Path) -> None:
    rental, cloud = commands(BY_SSH, RENTAL), commands(BY_API, CLOUD)
    said = passes(copy, rental[0]) + passes(copy, cloud[0])
    assert all(f"  {command}\n" in said for command in (*rental[1:], *cloud[1:])), "the scaffold names other commands"
    passes(copy, check(copy, "mypy"))
    passes(copy, f".venv/bin/python -m pytest -q tests/unit/platforms/test_{ADAPTER}_platform.py")
    stale = run(copy, ".venv/bin/python docs/generate.py --check")
    assert (stale.returncode, "docs/reference/platforms.md" in stale.stdout + stale.stderr) == (1, True)
    left = run(copy, f".venv/bin/python -m pytest -q tests/unit/profiles/test_profiles.py -k {CLOUD}")
    assert f"test_nothing_that_the_scaffold_asks_for_is_left_open[{CLOUD}]" in left.stdout, left.stdout
    write_what_is_open(copy)
    for command in dict.fromkeys((*rental[1:], *cloud[1:])):
        said = passes(copy, command if command != "make check" else check(copy, "mypy|pytest"))
        if "conformance" in command:
            assert int(re.findall(r"(\d+) passed", said)[-1]) >= 20, said
    passes(copy, ".venv/bin/python docs/generate.py --check")
    assert "toy-cloud" in (copy / "docs/reference/platforms.md").read_text("utf-8")


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_types_and_architecture_hold_before_and_after(copy: Path) -> None:
    for command in (commands(BY_SSH, RENTAL)[0], commands(BY_API, CLOUD)[0], "make check PYTHON=:"):
        passes(copy, command)
    write_what_is_open(copy)
    passes(copy, "make check PYTHON=:")


@pytest.mark.parametrize(("title", "api"), [(BY_SSH, False), (BY_API, True)])
def test_the_page_names_all_that_the_scaffold_writes(title: str, api: bool) -> None:
    first, *others = commands(title, CLOUD)
    assert first.split() == [".venv/bin/sweepctl", "profile", "new", CLOUD, *(["--api"] if api else [])]
    assert others == new.next_commands(CLOUD, api=api)
    files = new.new_files(ROOT, CLOUD, api=api, day=date(2026, 11, 23))
    page = named(section(title), CLOUD)
    assert [path for path in files if f"`{path}`" not in page] == []


@pytest.mark.parametrize("api", [False, True])
def test_the_profile_that_it_writes_holds_at_once(tmp_path: Path, api: bool) -> None:
    text = new.new_files(ROOT, CLOUD, api=api, day=date(2026, 11, 23))[f"profiles/{CLOUD}.md"]
    path = tmp_path / f"{CLOUD}.md"
    path.write_text(text, encoding="utf-8")
    assert [one.words for one in mistakes_in(path, path.name)] == []


def test_the_page_names_each_method_and_each_capability() -> None:
    page = section(BY_API)
    verbs = [name for name, what in vars(Platform).items() if callable(what) and not name.startswith("_")]
    kinds = [
        kind
        for kind in vars(capabilities).values()
        if isinstance(kind, type) and kind.__module__ == capabilities.__name__
    ]
    abilities = [
        name for kind in kinds for name, what in vars(kind).items() if callable(what) and not name.startswith("_")
    ]
    of_hosts = {name for name in vars(capabilities.IsHost) if not name.startswith("_")}
    asked = [*verbs, *(kind.__name__ for kind in kinds), *(name for name in abilities if name not in of_hosts)]
    assert len(asked) > 20
    assert [name for name in asked if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", ["ace", "z9", "a-cloud-of-20-letter"])
def test_what_it_writes_is_formatted_whatever_the_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for path, text in new.new_files(ROOT, name, api=True, day=date(2026, 11, 23)).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    ours = 'lint.isort.known-first-party=["sweepstack", "tests"]'  # as the linter sees it where all of it is
    for how in (["check", "--config", ours], ["format", "--check"]):
        result = subprocess.run(
            [sys.executable, "-m", "ruff", *how, "."], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
        )
        assert result.returncode == 0, result.stdout


def test_what_it_writes_imports_what_is_there() -> None:
    files = new.new_files(ROOT, CLOUD, api=True, day=date(2026, 11, 23))
    written = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files}
    texts = [ast.parse(text) for path, text in files.items() if path.endswith(".py")]
    asked = [
        (node.module, alias.name)
        for tree in texts
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(("sweepstack", "tests"))
        for alias in node.names
    ]
    assert asked
    for module, name in asked:
        if module not in written and f"{module}.{name}" not in written:
            found = importlib.import_module(module)
            below = importlib.util.find_spec(f"{module}.{name}") if hasattr(found, "__path__") else None
            assert below or hasattr(found, name), f"from {module} import {name}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Toy", "is no name of a platform"),
        ("a b", "is no name of a platform"),
        ("../x", "is no name of a platform"),
        ("x" * 25, "is no name of a platform"),
        ("lambda", "lambda is a word of Python"),
        ("queue", "queue is a word of our own code"),
        ("common", "common is a word of our own code"),
        ("runpod", "profiles/runpod.md is there already"),
    ],
)
def test_a_name_that_will_not_do_is_refused(name: str, said: str) -> None:
    with pytest.raises(No, match=re.escape(said)):
        new.new_files(ROOT, name, api=True, day=date(2026, 11, 23))


def test_nothing_is_written_over_what_is_there(tmp_path: Path) -> None:
    def write() -> list[str]:
        return new.write_new(tmp_path, CLOUD, api=True, day=date(2026, 11, 23))

    with pytest.raises(No, match="is no checkout of sweepstack"):
        write()
    shutil.copytree(ROOT / new.TEMPLATES, tmp_path / new.TEMPLATES)
    there = tmp_path / f"tests/conformance/harness_{ADAPTER}.py"
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(No, match=f"tests/conformance/harness_{ADAPTER}.py is there already"):
        write()
    assert (sorted(tmp_path.rglob("*")), there.read_text()) == (before, "mine")
    there.unlink()
    assert all((tmp_path / path).is_file() for path in write())
    with pytest.raises(No, match="is there already"):
        write()
