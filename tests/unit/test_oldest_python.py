"""All that runs on another machine runs on Python 3.8, the oldest that boxes and hosts may have.

Vermin reads it, what vermin can't tell is read here, and a real 3.8 imports it where this machine has one.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.channel import agent_source
from sweepstack.launch.ship import checkpoint_files, runner_files
from sweepstack.platforms.ssh import api
from tests.oldest_python import oldest_python, too_new

ROOT = Path(__file__).resolve().parents[2]
ONBOX = ROOT / "sweepstack" / "onbox"
EXTENSIONS = ROOT / "sweepstack" / "extensions"
SOURCES = [ROOT / "sweepstack" / "__init__.py", *sorted(ONBOX.rglob("*.py")), *sorted(EXTENSIONS.glob("*/onbox/*.py"))]


def complaints(*paths: Path) -> str:
    """What of these files Python 3.8 lacks, by vermin: empty for nothing, else a line for each. It looks at no types,
    so methods of objects are left to `too_new`; and it skips annotations, which no file here evaluates."""
    words = ["--target=3.8-", "--violations", "--quiet", "--no-config-file", "--processes=1"]
    found = subprocess.run(
        [Path(sys.executable).with_name("vermin"), *words, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return "" if found.returncode == 0 else found.stdout + found.stderr


def programs(path: Path) -> Iterator[str]:
    """Python programs that stand as text in a file, and are run by a box's interpreter as `python -c`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            try:
                tree = ast.parse(node.value)
            except SyntaxError:
                continue
            if any(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.walk(tree)):
                yield node.value


def test_all_that_runs_on_another_machine_is_written_for_it(tmp_path: Path) -> None:
    """The files, the programs that stand in them as text, and the loader of what is sent over a connection."""
    texts = [text for path in SOURCES for text in programs(path)]
    assert len(texts) >= 4
    _, _, rest = agent_source.agent({}).partition(b"\n")
    for number, text in enumerate([*texts, zlib.decompressobj().decompress(rest).decode()]):
        (tmp_path / f"text{number}.py").write_text(text)
    everything = [*SOURCES, *sorted(tmp_path.glob("*.py"))]
    assert complaints(*everything) == ""
    assert [line for path in everything for line in too_new(path.read_text(encoding="utf-8"), path.name)] == []


SENT = {
    "the agent": agent_source.sources(*agent_source.AGENT),
    "a host": agent_source.sources(*api.HOST),
    "the runner": [source for _, source, _ in runner_files()],
    "a visit": [ONBOX / "visit" / "shell.py"],
    "the loader": [ONBOX / "bootstrap.py"],
    "the checkpoint helper": checkpoint_files(),
}
if (EXTENSIONS / "by_hand").is_dir():
    SENT["a bundle"] = agent_source.sources("common", "by_hand")
if (EXTENSIONS / "slurm").is_dir():
    SENT["a login node"] = agent_source.sources(*api.HOST, "slurm")


@pytest.mark.parametrize("program", SENT)
def test_what_is_sent_imports_only_what_is_sent_with_it(program: str) -> None:
    """And the standard library; the checkpoint helper, inside its functions, what the training code brought along."""
    alone = program == "the checkpoint helper"
    names = {path.stem if alone else name_there(path) for path in SENT[program]}
    for path in SENT[program]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for name in imported(node, name_there(path).rpartition(".")[0]):
                sent = name in names or any(one.startswith(f"{name}.") for one in names)
                brought = alone and node not in tree.body and name in ("torch", "numpy")
                assert sent or brought or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name}: {name}"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def name_there(path: Path) -> str:
    """What a module is called on the other machine: a folder of an extension as one of sweepstack/onbox."""
    found = re.fullmatch(r"sweepstack\.extensions\.(\w+)\.onbox(|\.\w+)", module_name(path))
    return f"sweepstack.onbox.{found[1]}{found[2]}" if found else module_name(path)


@functools.cache
def sent() -> set[str]:
    return {name_there(path) for path in SOURCES}


def imported(node: ast.AST, package: str) -> list[str]:
    """The modules that a statement imports, in a module of this package."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = ".".join(filter(None, [package if node.level else "", node.module]))
        return [name for alias in node.names if (name := f"{base}.{alias.name}") in sent()] or [base]
    return []


@pytest.mark.parametrize(
    "later",
    [
        "import hashlib\nwith open('f', 'rb') as f:\n    hashlib.file_digest(f, 'sha256')",
        "from enum import StrEnum",
        "from datetime import UTC",
        "dict(zip([], [], strict=True))",
        "match 1:\n    case _: pass",
        "with (open('f') as f, open('g') as g):\n    pass",
        "try:\n    pass\nexcept* ValueError:\n    pass",
        'said = {"is": 1} | {"more": 2}',
        "said |= dict(a=1)",
    ],
)
def test_what_vermin_sees(later: str, tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(later)
    assert complaints(tmp_path / "later.py")


@pytest.mark.parametrize(
    "later", ['said = {"is": 1} | (more if more else {})', 'name.removeprefix("a")', "Names = list[str]"]
)
def test_what_it_does_not_see_is_read_here(later: str, tmp_path: Path) -> None:
    """One that vermin has learned to see goes to the test above, and out of `too_new`."""
    (tmp_path / "later.py").write_text(later)
    assert complaints(tmp_path / "later.py") == ""
    assert len(list(too_new(later, "later.py"))) == 1


def test_what_is_written_for_it_is_let_be(tmp_path: Path) -> None:
    fine = ["from __future__ import annotations", "names: list[str] = []", "both = {1} | {2}", "x = {**a, **b}"]
    (tmp_path / "fine.py").write_text("\n".join(fine))
    assert complaints(tmp_path / "fine.py") == ""
    assert list(too_new("\n".join(fine), "fine.py")) == []


def test_the_oldest_python_imports_all_of_it() -> None:
    oldest = oldest_python()
    if oldest is None:
        pytest.skip("no Python 3.8 on this machine")
    names = [module_name(path) for path in SOURCES if path.parent.name != "checkpoint"]
    check = f"import sys; sys.path.insert(0, '.'); [__import__(name) for name in {names!r}]"
    subprocess.run([oldest, "-B", "-c", check], cwd=ROOT, check=True, timeout=120)
