"""The extras of the package: which there are, and which of them stack files ask for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from scripts.lib.errors import SetupError

LOADERS = ("flax", "gguf", "hdf5", "image", "onnx", "orbax", "parquet", "skops", "tensorboard", "zarr")
"""Those by which artifacts are read; `load: keras` needs hdf5."""
HEAVY = ("orbax",)
"""What `--dev` leaves out: 66 MB. `--trainer` brings it, too."""
ASKED_FOR = {
    "kubernetes": r"\bkubernetes\b",
    **{name: rf"\bload:\s*[\"']?{'(hdf5|keras)' if name == 'hdf5' else name}\b" for name in LOADERS},
    "tensorboard": r"\bload:\s*[\"']?tensorboard\b|\.tfevents\.",
    "runpod": r"\brunpod\b",
    "s3": r"s3://",
    "search": r"\bsampler:\s*[\"']?(?:sobol|tpe|nsgaii)\b",
    "vastai": r"\bvastai\b",
}
"""Extra → what stands in a stack file that needs it. One too many is installed in vain; one too few is refused by
`pulumi up`, which names the command."""
_COMMENT = re.compile(r"(?:^|\s)#.*")


def declared(root: Path) -> list[str]:
    """The extras in pyproject.toml, but `examples`, which is a dependency group here."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(set(project.get("optional-dependencies", ())) - {"examples"})


def asked_for(files: Iterable[Path]) -> list[str]:
    """The extras that these stack files need.

    Raises:
        SetupError: a file can't be read.
    """
    lines: list[str] = []
    for path in files:
        try:
            lines += (_COMMENT.sub("", line) for line in path.read_text(encoding="utf-8").splitlines())
        except (OSError, ValueError) as error:
            raise SetupError(f"the stack file {path} can't be read: {error}") from error
    return [extra for extra, words in ASKED_FOR.items() if any(re.search(words, line) for line in lines)]


def wanted(root: Path, stacks: Iterable[Path] | None, named: Iterable[str], *, every: bool) -> list[str]:
    """The extras to install, in brackets, as pip writes them: those that are named, and those of the stack files, by
    default of each in stacks/. `every`: all that there are but HEAVY.

    Raises:
        SetupError: there is no such extra.
    """
    there = declared(root)
    if unknown := sorted(set(named) - set(there)):
        raise SetupError(f"there is no extra {', '.join(unknown)}; there are: {', '.join(there)}")
    files = sorted((root / "stacks").glob("*.yaml")) if stacks is None else stacks
    found = [extra for extra in there if extra not in HEAVY] if every else sorted({*named, *asked_for(files)})
    return [f"[{extra}]" for extra in found]
