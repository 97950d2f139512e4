"""What is known of a tree: which of its proof tests passed, and the tracked file that says how the last proof went."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRACKED = ROOT / "tests" / "proof.json"
KEPT = ROOT / ".cache" / "proof"
IRRELEVANT = ("docs/", "CHANGELOG.md", "tests/proof.json")
"""What no proof test reads: a change there makes no other tree. (The pages that are played are made by tests/week.)"""
PLAYER = "tests/proof/"
"""What plays the proof makes no other tree either."""
_TEST = re.compile(r"\btest_\w+")
_COMMENT = re.compile(r"(?:^\s*|  )# .*$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How one test ended: `passed`, `failed`, `skipped`. `seconds`: with its fixtures. `file`: the digest of its file,
    as it was played."""

    test: str
    outcome: str
    seconds: float
    file: str = ""


def tree_digest(root: Path = ROOT) -> str:
    """Of all files of the checkout, as they are, but for what git ignores, what no proof test reads, and the test files
    that no other file names: such a one counts for its own tests alone (`Outcome.file`)."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", root=root).split("\0")
    contents = {name: _content(root / name) for name in sorted(listed) if name and not name.startswith(IRRELEVANT)}
    alone = unnamed_tests({name: content.decode(errors="replace") for name, content in contents.items()})
    digest = hashlib.sha256()
    for name, content in contents.items():
        if name not in alone and not name.startswith(PLAYER):
            path = root / name
            digest.update(f"{name}\0{path.lstat().st_mode if path.exists() else 0:o}\0".encode())
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def unnamed_tests(texts: Mapping[str, str]) -> set[str]:
    """The test files whose name no other of these files has, pages and comments left out: no other test reads them."""
    words = {name: set(_TEST.findall(_COMMENT.sub("", texts[name]))) for name in texts if not name.endswith(".md")}
    named = Counter(word for found in words.values() for word in found)
    tests = {name: Path(name).stem for name in words if name.startswith("tests/") and Path(name).match("test_*.py")}
    named.update(tests.values())
    return {name for name, stem in tests.items() if named[stem] == 1 + (stem in words[name])}


def file_digest(test: str, root: Path = ROOT) -> str:
    """Of the file that a test is in, as it is now."""
    return hashlib.sha256(_content(root / test.partition("::")[0])).hexdigest()[:16]


def _content(path: Path) -> bytes:
    return str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""


def commit(root: Path = ROOT) -> str:
    """The commit that is checked out; empty where git does not know one."""
    try:
        return _git("rev-parse", "--short=12", "HEAD", root=root).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def is_changed(root: Path = ROOT) -> bool:
    """Whether the tree is not what its commit says, the tracked summary left out."""
    return any(not line.endswith("tests/proof.json") for line in _git("status", "--porcelain", root=root).splitlines())


def _git(*words: str, root: Path) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def outcomes(tree: str, kept: Path = KEPT, root: Path = ROOT) -> dict[str, Outcome]:
    """Test → how it ended last on this tree, with its file as it is now. What other machines played counts where their
    files lie here, too."""
    found: dict[str, Outcome] = {}
    digest = functools.cache(lambda file: file_digest(file, root))
    for path in sorted((kept / tree).glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
        for line in path.read_text().splitlines():
            one = Outcome(**json.loads(line))
            if one.file == digest(one.test.partition("::")[0]):
                found[one.test] = one
    return found


def add(path: Path, one: Outcome) -> None:
    """Appends a result to this run's file."""
    with path.open("a") as file:
        file.write(json.dumps(vars(one)) + "\n")


@dataclass(frozen=True)
class Cost:
    """Seconds that a file's tests take: the dearest, which mostly made what they share, and each on average."""

    first: float
    each: float


def costs(document: Mapping[str, Any]) -> dict[str, Cost]:
    """File → what its proof tests cost when they were played last."""
    return {name: Cost(one["first"], one["each"]) for name, one in document.get("files", {}).items()}


def read(path: Path = TRACKED) -> dict[str, Any]:
    """The tracked file; empty where there is none."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def is_of_this_history(name: str, root: Path = ROOT) -> bool | None:
    """Whether the checked-out commit is this one, or came after it; None where git can't tell: no repository, or a
    clone without the commits of before."""
    try:
        if _git("rev-parse", "--is-shallow-repository", root=root).strip() != "false":
            return None
    except (OSError, subprocess.CalledProcessError):
        return None
    words = ["git", "merge-base", "--is-ancestor", f"{name}^{{commit}}", "HEAD"]
    return subprocess.run(words, cwd=root, capture_output=True).returncode == 0


def write(document: Mapping[str, Any], path: Path = TRACKED) -> None:
    """Writes the tracked file."""
    path.write_text(json.dumps(document, indent=1) + "\n")


def unplayed(document: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """The same tests and costs with nothing proved: what is true of a history of which nothing was played."""
    count = {"tests": document["tests"], "passed": 0, "failed": 0, "skipped": 0, "not_reached": document["tests"]}
    files = document["files"]
    return {**facts, **count, "not_reached_in": sorted(files), "failures": [], "files": files}


def summary(
    tests: Iterable[str], found: Mapping[str, Outcome], known: Mapping[str, Cost] | None = None, **facts: Any
) -> dict[str, Any]:
    """The document of the tracked file. `tests`: all that there are; `known`: what files cost when they were played
    before, for those that were not reached; `facts`: commit, tree, date and the like."""
    tests = sorted(tests)
    by_file: dict[str, list[float]] = defaultdict(list)
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for test in tests:
        if test in found:
            count[found[test].outcome] += 1
            by_file[test.partition("::")[0]].append(found[test].seconds)
    there = {test.partition("::")[0] for test in tests}
    files: dict[str, dict[str, Any]] = {
        name: {"first": cost.first, "each": cost.each} for name, cost in (known or {}).items() if name in there
    }
    files |= {
        name: {"tests": len(seconds), "first": round(max(seconds), 1), "each": round(sum(seconds) / len(seconds), 1)}
        for name, seconds in by_file.items()
    }
    left = [test for test in tests if test not in found]
    return {
        **facts,
        "tests": len(tests),
        **count,
        "not_reached": len(left),
        "not_reached_in": sorted({test.partition("::")[0] for test in left}),
        "failures": [test for test in tests if test in found and found[test].outcome == "failed"],
        "files": dict(sorted(files.items())),
    }
