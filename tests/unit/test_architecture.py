"""The shape of the code, checked: imports go one way, platform names stay in their place, modules stay small.

Each rule is a function from a tree to complaints, so the rules themselves are tested: on a small bad tree each must
complain about exactly what is wrong with it.
"""

from __future__ import annotations

import ast
import builtins
import functools
import graphlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("components", "sweepstack", "scripts")
MAX_LINES = 700
MAX_FUNCTION = 60
LONG_FUNCTIONS = {
    ("scripts/lib/processes.py", "run"),
    ("sweepstack/operations/sweep/collect.py", "take_snapshot"),
    ("sweepstack/cli/commands/approve/preview.py", "print_draft"),
    ("sweepstack/cli/commands/place.py", "place"),
    ("sweepstack/cli/commands/policy.py", "_approve"),
    ("sweepstack/cli/commands/pull/fetch.py", "report"),
    ("sweepstack/launch/first_step.py", "await_first_step"),
    ("sweepstack/launch/launch.py", "launch"),
    ("sweepstack/operations/observe.py", "observe"),
    ("sweepstack/provider/resources/market.py", "preview"),
}
"""Functions that were longer when the bound came. Nothing is added here; one that became short is taken out."""
COMMON_WORDS = {"local", "generic-ssh", "lambda", "manual"}
"""Profiles whose names are words of any program."""
PLATFORM_NAMES = re.compile(
    rf"(?<![a-z])({'|'.join(sorted({path.stem for path in (ROOT / 'profiles').glob('*.md')} - COMMON_WORDS))}"
    r"|vast\.?ai|vast|lambda[ _-]?labs|slurm|kubernetes|k8s)(?-i:(?![a-z]|\.json))",
    re.IGNORECASE,
)
PLATFORM_PLACES = ("sweepstack/profiles", "sweepstack/platforms", "sweepstack/extensions", "components/platforms")
COMMANDS = "sweepstack/core/extensions.py"
"""The table of the commands that extensions bring, which names those, and one has the name of its platform."""
INSTALLS = "scripts/lib"
"""Set-up names what it installs for the tests."""
UNCLEAR = re.compile(r"(?<!\")\b(nobody|somebody|whoever)\b(?!\")", re.IGNORECASE)
"""Words that hide who acts. In quotes they are a value, such as the `billed_by: "nobody"` of a profile."""
COMPONENTS, PROGRAM, SETUP = "components", "program", "setup"


def layers() -> list[str]:
    """The folders of `sweepstack/` from top to bottom, as ARCHITECTURE.md lists them."""
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("| layer |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


LAYERS = layers()
BELOW = {layer: set(LAYERS[index:]) for index, layer in enumerate(LAYERS)}
MAY_IMPORT = {
    **BELOW,
    "cli": BELOW["cli"] - {"provider"},
    "extensions": BELOW["extensions"] - {"provider"},
    COMPONENTS: {COMPONENTS, "profiles", *(BELOW["config"])},
    PROGRAM: {COMPONENTS},
    SETUP: {SETUP},
}
"""Layer of a module → layers that it may import."""
SENT = re.compile(r"sweepstack\.extensions\.\w+\.onbox\b")
"""What an extension sends to other machines: as code of `onbox`, it imports that and itself."""
ALLOWED = re.compile(r"(__future__|typing|sweepstack\.core\.extensions|sweepstack\.extensions\.library)\b")
"""What the package itself may import, the extension for a type checker alone; `tests/extensions/library` proves that it
loads nothing before it is asked for."""
CANONICAL = "sweepstack/onbox/common/canonical.py"
DIGEST_FORM = re.compile(r"sha256:(\[|$)")


def layer_of(module: str) -> str | None:
    """The layer of a dotted module name. None: not ours, or the package itself."""
    root, _, rest = module.partition(".")
    if root == "sweepstack":
        return rest.partition(".")[0] or None
    return {"components": COMPONENTS, "scripts": SETUP, "__main__": PROGRAM}.get(root)


def modules(root: Path) -> Iterator[tuple[str, Path, ast.Module]]:
    """All of the product's Python modules: dotted name, path, syntax tree."""
    paths = [path for folder in CODE for path in sorted((root / folder).rglob("*.py"))]
    for path in [*paths, *([root / "__main__.py"] if (root / "__main__.py").is_file() else [])]:
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        yield name, path, _parsed(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def _parsed(text: str, path: str) -> ast.Module:
    """Each rule reads the whole tree: parsed once for all of them."""
    return ast.parse(text, path)


@functools.cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree, walked once for all rules."""
    return tuple(ast.walk(tree))


def imports(name: str, path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every import in a module, also inside functions, as (line, dotted name), relative ones resolved."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from components import config` names a module by its last word.
            yield from ((node.lineno, f"{base}.{alias.name}" if base else alias.name) for alias in node.names)


def wrong_way_imports(root: Path) -> list[str]:
    complaints = []
    for name, path, tree in modules(root):
        layer = layer_of(name)
        if layer is None:  # the package's own __init__, which names what a person's program imports
            found = [one for one in imports(name, path, tree) if not ALLOWED.match(one[1])]
            complaints += [f"{path.relative_to(root)}:{line}: the package imports {target}" for line, target in found]
            continue
        if layer not in MAY_IMPORT:
            complaints.append(f"{path.relative_to(root)}: ARCHITECTURE.md does not list the layer {layer}")
            continue
        own = SENT.match(name)
        layer = "onbox" if own else layer
        for line, target in imports(name, path, tree):
            other = layer_of(target)
            if own and f"{target}.".startswith(f"{own.group()}."):
                continue
            if other is not None and other not in MAY_IMPORT[layer]:
                complaints.append(f"{path.relative_to(root)}:{line}: {layer} code imports {target} ({other})")
    return complaints


def crossed_extensions(root: Path) -> list[str]:
    """Extensions that import another which their `REQUIRES` does not name, and those that need each other."""
    ours = [(name.split("."), path, tree) for name, path, tree in modules(root)]
    ours = [(parts[2], path, tree) for parts, path, tree in ours if parts[1:2] == ["extensions"] and parts[2:]]
    needs = {own: _required(tree) for own, path, tree in ours if path.parent.name == own and path.stem == "__init__"}
    complaints = [
        f"{path.relative_to(root)}:{line}: {own} imports {target}, and its REQUIRES does not name that"
        for own, path, tree in ours
        for line, target in imports(".".join(path.relative_to(root).with_suffix("").parts), path, tree)
        if target.startswith("sweepstack.extensions.") and target.split(".")[2] not in {own, *needs.get(own, ())}
    ]
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        complaints.append(f"extensions need each other: {' → '.join(error.args[1])}")
    return complaints


def _required(tree: ast.Module) -> set[str]:
    """The extensions that an `__init__.py` names in REQUIRES."""
    return {
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REQUIRES"
        for name in ast.literal_eval(node.value)
    }


def import_circles(root: Path) -> list[str]:
    """Modules that import each other, by whatever way. An import that waits in a function or for a type checker is one,
    too: it hides the circle and does not open it."""
    everywhere = list(modules(root))
    names = {name for name, _, _ in everywhere}
    needs = {
        name: {target if target in names else target.rpartition(".")[0] for _, target in imports(name, path, tree)}
        & (names - {name})
        for name, path, tree in everywhere
    }
    while free := {name for name, others in needs.items() if not others}:  # it is in no circle
        needs = {name: others - free for name, others in needs.items() if name not in free}
    return [f"{name}: imports {', '.join(sorted(others))}, and it comes back" for name, others in needs.items()]


def strange_engine(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{line}: only components/ and the provider know the engine, this imports {target}"
        for name, path, tree in modules(root)
        if layer_of(name) not in (COMPONENTS, PROGRAM, "provider")
        for line, target in imports(name, path, tree)
        if target.partition(".")[0] in ("pulumi", "pulumi_command")
    ]


def stray_platform_names(root: Path) -> list[str]:
    complaints = []
    for _, path, _ in modules(root):
        place = path.relative_to(root).as_posix()
        if place == COMMANDS or place.startswith(tuple(folder + "/" for folder in (*PLATFORM_PLACES, INSTALLS))):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := PLATFORM_NAMES.search(line):
                complaints.append(f"{place}:{number}: names the platform {found.group()!r}")
    return complaints


def long_modules(root: Path) -> list[str]:
    complaints = []
    for _, path, _ in modules(root):
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > MAX_LINES:
            complaints.append(f"{path.relative_to(root)}: {count} lines; one idea fits in {MAX_LINES}")
    return complaints


def long_functions(root: Path) -> dict[tuple[str, str], int]:
    """Functions of more than MAX_FUNCTION lines: (path, name) → lines."""
    return {
        (path.relative_to(root).as_posix(), node.name): node.end_lineno - node.lineno + 1
        for _, path, tree in modules(root)
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MAX_FUNCTION
    }


def unclear_words(root: Path) -> list[str]:
    """First lines of modules that are no line of their own below 100 characters, and words that hide who acts."""
    complaints = []
    for _, path, tree in modules(root):
        place = path.relative_to(root)
        first, *rest = (ast.get_docstring(tree) or "").splitlines() or [""]
        if len(first) >= 100 or (rest and rest[0]):
            complaints.append(f"{place}: its first line is a sentence of its own below 100 characters")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := UNCLEAR.search(line):
                complaints.append(f"{place}:{number}: says {found.group()!r} instead of who it is")
    return complaints


def _is_builtin_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def foreign_exceptions(root: Path) -> list[str]:
    """Exception classes of the package that are no SweepstackError, and bare `raise Exception`."""
    complaints = []
    bases: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for name, path, tree in modules(root):
        if name.partition(".")[0] != "sweepstack":
            continue
        place = path.relative_to(root)
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
                places[node.name] = f"{place}:{node.lineno}"
            elif isinstance(node, ast.Raise) and node.exc is not None:
                raised = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
                if raised in ("Exception", "BaseException"):
                    complaints.append(f"{place}:{node.lineno}: raises a bare {raised}")

    def descends(name: str, wanted: Callable[[str], bool], seen: frozenset[str] = frozenset()) -> bool:
        return wanted(name) or any(
            descends(base, wanted, seen | {name}) for base in bases.get(name, []) if base not in seen
        )

    for name, where in places.items():
        if descends(name, _is_builtin_exception) and not descends(name, "SweepstackError".__eq__):
            complaints.append(f"{where}: {name} is no SweepstackError")
    return complaints


def second_digest_forms(root: Path) -> list[str]:
    """Where a digest is put together, taken apart or matched by hand, or canonical JSON is made: one module does it."""
    complaints = []
    for _, path, tree in modules(root):
        place = path.relative_to(root).as_posix()
        if place == CANONICAL:
            continue
        for node in nodes(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and DIGEST_FORM.search(node.value):
                complaints.append(f"{place}:{node.lineno}: the form of a digest is {CANONICAL}'s")
            elif isinstance(node, ast.Call) and {"sort_keys", "separators"} <= {word.arg for word in node.keywords}:
                complaints.append(f"{place}:{node.lineno}: canonical JSON is {CANONICAL}'s")
    return complaints


RULES = [
    wrong_way_imports,
    crossed_extensions,
    import_circles,
    strange_engine,
    stray_platform_names,
    long_modules,
    foreign_exceptions,
    unclear_words,
    second_digest_forms,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_the_rule(rule: Callable[[Path], list[str]]) -> None:
    complaints = rule(ROOT)
    assert not complaints, "\n" + "\n".join(complaints)


def test_rules_see_the_whole_tree() -> None:
    """A rule over no modules would hold for ever."""
    names = {name for name, _, _ in modules(ROOT)}
    assert {
        "sweepstack.core.records",
        "sweepstack.onbox.common.errors",
        "sweepstack.provider.grpc_service",
        "scripts.lib.main",
    } <= names


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes one module into an otherwise clean small tree and returns its root."""

    def write(name: str, text: str) -> Path:
        errors = "from sweepstack.onbox.common.errors import SweepstackError\n"
        for module, content in (
            ("sweepstack/onbox/common/errors.py", "class SweepstackError(Exception): ...\n"),
            ("sweepstack/core/box.py", f"{errors}class Full(SweepstackError): ...\n"),
            ("sweepstack/platforms/runpod/_api.py", "name = 'RunPod'\n"),
            ("sweepstack/platforms/runpod/platform.py", "from sweepstack.platforms.runpod import _api\n"),
            (name, text),
        ):
            path = tmp_path / module
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if module == name else content, encoding="utf-8")
        return tmp_path

    return write


def test_layers_are_the_folders() -> None:
    # Folders with a module: of one that moved, Python may have left its own there.
    folders = {path.parent.name for path in (ROOT / "sweepstack").glob("*/*.py")}
    assert set(LAYERS) == folders
    assert len(LAYERS) == len(folders)


def test_clean_tree_has_no_complaints(tree: Callable[[str, str], Path]) -> None:
    root = tree(
        "sweepstack/cli/app.py", "from sweepstack.core import box\nfrom sweepstack.platforms import runpod_name\n"
    )
    assert [complaint for rule in RULES for complaint in rule(root)] == [
        "sweepstack/cli/app.py:2: names the platform 'runpod'"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "sweepstack/status/compose.py",
            "import sweepstack.profiles.load as load, sweepstack.operations.power\n",
        ),
        ("sweepstack/status/compose.py", "from sweepstack.cli import main\n"),
        ("sweepstack/status/compose.py", "def late():\n    from sweepstack.provider.grpc_service import serve\n"),
        ("sweepstack/config/model.py", "from sweepstack.profiles.load import load_profile\n"),
        ("sweepstack/config/file.py", "from components import sweep\n"),
        ("sweepstack/profiles/resolve.py", "from components.box import Box\n"),
        ("components/box.py", "import sweepstack.provider.grpc_service\n"),
        ("components/box.py", "from sweepstack.teardown.check import may_end\n"),
        ("sweepstack/provider/grpc_service.py", "from sweepstack import cli\n"),
        ("sweepstack/provider/grpc_service.py", "from components import sweep\n"),
        ("sweepstack/platforms/x/platform.py", "from sweepstack.evidence.store import EvidenceStore\n"),
        ("sweepstack/platforms/x/platform.py", "from sweepstack.teardown import check\n"),
        ("sweepstack/cli/app.py", "from sweepstack.provider import grpc_service\n"),
        ("sweepstack/cli/app.py", "from components.sweep import Sweep\n"),
        ("sweepstack/core/journal.py", "from ..cli import main\n"),
        ("sweepstack/onbox/agent/agent.py", "from sweepstack.core import journal\n"),
        ("sweepstack/extensions/x/onbox/main.py", "from sweepstack.core import journal\n"),
        (
            "sweepstack/extensions/x/onbox/main.py",
            "from . import a\nimport sweepstack.extensions.x.platform\n",
        ),
        ("sweepstack/odd/thing.py", "import os\n"),
        ("sweepstack/__init__.py", "import sweepstack.core.records\n"),
        ("scripts/lib/main.py", "import sweepstack.core.records\n"),
        ("__main__.py", "import sweepstack.provider.grpc_service\n"),
    ],
)
def test_wrong_way_import_is_seen(tree: Callable[[str, str], Path], name: str, text: str) -> None:
    (complaint,) = wrong_way_imports(tree(name, text))
    assert complaint.startswith(f"{name}:")


@pytest.mark.parametrize(
    "text",
    [
        "from sweepstack.core import box\n",
        "def late():\n    import sweepstack.core.box\n",
        "if TYPE_CHECKING:\n    from sweepstack.core.box import Full\n",
    ],
)
def test_import_circle_is_seen(tree: Callable[[str, str], Path], text: str) -> None:
    root = tree("sweepstack/core/view.py", text)
    assert import_circles(root) == []
    box = root / "sweepstack" / "core" / "box.py"
    box.write_text(box.read_text() + "from sweepstack.core import view\n")
    complaints = import_circles(root)
    assert [complaint.partition(":")[0] for complaint in complaints] == ["sweepstack.core.box", "sweepstack.core.view"]


def test_crossed_extensions_are_seen(tree: Callable[[str, str], Path]) -> None:
    root = tree("sweepstack/extensions/one/view.py", "def late():\n    from sweepstack.extensions.two import api\n")
    first, other = (root / "sweepstack" / "extensions" / name / "__init__.py" for name in ("one", "two"))
    other.parent.mkdir()
    for path in (first, other):
        path.write_text('"""One."""\n')
    assert len(crossed_extensions(root)) == 1
    first.write_text('REQUIRES = ("two",)\n')
    assert crossed_extensions(root) == []
    other.write_text('REQUIRES = ("one",)\n')
    assert "need each other" in crossed_extensions(root)[0]


@pytest.mark.parametrize(
    "text", ["import pulumi\n", "from pulumi.runtime import proto\n", "def f():\n    import pulumi as p\n"]
)
def test_strange_engine_is_seen(tree: Callable[[str, str], Path], text: str) -> None:
    assert len(strange_engine(tree("sweepstack/core/view.py", text))) == 1
    assert strange_engine(tree("sweepstack/core/view.py", "")) == []
    assert strange_engine(tree("sweepstack/provider/view.py", text)) == []


@pytest.mark.parametrize("text", ["x = 'RunPod'\n", "# on vast.ai\n", "import vastai_sdk\n", "class SlurmBox: ...\n"])
def test_stray_platform_name_is_seen(tree: Callable[[str, str], Path], text: str) -> None:
    assert len(stray_platform_names(tree("components/box.py", text))) == 1


def test_words_that_only_contain_a_platform_name_are_none(tree: Callable[[str, str], Path]) -> None:
    assert stray_platform_names(tree("components/box.py", "# devastating, local, a lambda\n")) == []


@pytest.mark.parametrize(
    "text",
    [f'"""{"A box. " * 15}"""\n', '"""A box\nthat runs."""\n', "# nobody knows\n", "x = 'whoever'\n"],
)
def test_unclear_words_are_seen(tree: Callable[[str, str], Path], text: str) -> None:
    assert len(unclear_words(tree("sweepstack/core/view.py", text))) == 1
    assert unclear_words(tree("sweepstack/core/view.py", '"""A box.\n\nThat runs."""\nx = "nobody"\n')) == []


def test_long_module_is_seen(tree: Callable[[str, str], Path]) -> None:
    assert long_modules(tree("sweepstack/core/view.py", "x = 1\n" * MAX_LINES)) == []
    assert len(long_modules(tree("sweepstack/core/view.py", "x = 1\n" * (MAX_LINES + 1)))) == 1


def test_long_functions_are_found(tree: Callable[[str, str], Path]) -> None:
    assert long_functions(tree("sweepstack/core/view.py", "def f():\n" + "    x = 1\n" * (MAX_FUNCTION - 1))) == {}
    found = long_functions(tree("sweepstack/core/view.py", "def f():\n" + "    x = 1\n" * MAX_FUNCTION))
    assert found == {("sweepstack/core/view.py", "f"): MAX_FUNCTION + 1}


def test_no_function_is_longer_than_the_bound() -> None:
    assert set(long_functions(ROOT)) == LONG_FUNCTIONS


@pytest.mark.parametrize(
    "text",
    [
        "class Odd(Exception): ...\n",
        "class Odd(ValueError): ...\n",
        "import builtins\nclass Odd(builtins.OSError): ...\n",
        "class Base(RuntimeError, object): ...\n",
        "def f():\n    raise Exception('x')\n",
        "def f():\n    raise BaseException\n",
    ],
)
def test_foreign_exception_is_seen(tree: Callable[[str, str], Path], text: str) -> None:
    assert len(foreign_exceptions(tree("sweepstack/provider/odd.py", text))) == 1


def test_exception_with_two_parents_may_have_one_of_ours(tree: Callable[[str, str], Path]) -> None:
    ours = "from sweepstack.onbox.common.errors import SweepstackError\n"
    text = f"{ours}class Gone(SweepstackError, FileNotFoundError): ...\n"
    assert foreign_exceptions(tree("sweepstack/provider/odd.py", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        'short = digest.removeprefix("sha256:")\n',
        'import re\nDIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")\n',
        'digest = f"sha256:{hexdigest}"\n',
        'import json\ntext = json.dumps({}, sort_keys=True, separators=(",", ":"))\n',
    ],
)
def test_second_digest_form_is_seen(tree: Callable[[str, str], Path], text: str) -> None:
    assert second_digest_forms(tree(CANONICAL, text)) == []
    assert len(second_digest_forms(tree("sweepstack/core/view.py", text))) == 1
