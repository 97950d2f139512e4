"""Reads one file the way its spec asks for, and says whether it is good."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.loader_names import CORE, FOLDERS
from sweepstack.loaders.base import (
    Content,
    Folder,
    LoadResult,
    NoAnswer,
    NonFinite,
    OpenFile,
    Progress,
    Reader,
    Spec,
    Unreadable,
    Unsupported,
    open_file,
    some,
    wrong_crc,
)
from sweepstack.loaders.scan import Region, Scan, scan

if TYPE_CHECKING:
    from sweepstack.loaders.command import Check

NO_MEMORY = "needs more memory than a reader is given"


class Structure(Protocol):
    """A file whose structure was understood before its bulk is read."""

    @property
    def regions(self) -> Sequence[Region]: ...
    def content(self, scanned: Scan) -> Content:
        """Names and numbers, after the pass over all bytes. Raises Unreadable."""
        ...


def load(
    path: str,
    spec: Spec | None,
    expected_sha256: str | None = None,
    *,
    expected_size: int | None = None,
    reader: Reader = "restricted",
    check: Check | None = None,
    progress: Progress | None = None,
    members: Sequence[str] = (),
) -> LoadResult:
    """Digest, structure, names and numbers of the file at `path`. `spec` None: the digest alone.

    With `members` it is a folder, whose files these are by their paths in it: no digest, and of each file only what
    concerns the others. Each is to be read alone, too, as `member_spec` says.

    A digest other than `expected_sha256` (bare hex) is the only reason then given: what such a file holds is no longer
    of interest. Never raises for what the file holds. `reader` concerns `load: torch`, `check` `load: command`.
    """
    try:
        if members:
            return _load_folder(Folder(path, tuple(members)), spec, check)
        with open_file(path) as file:
            return _load(file, spec, expected_sha256, expected_size, reader, check, progress)
    except Unreadable as error:
        return LoadResult(False, (str(error),))
    except OSError as error:
        return LoadResult(False, (f"can't be read: {error.strerror}",))


def _load(
    file: OpenFile,
    spec: Spec | None,
    expected_sha256: str | None,
    expected_size: int | None,
    reader: Reader,
    check: Check | None,
    progress: Progress | None,
) -> LoadResult:
    reason = _size_problem(file, spec, expected_size)
    if reason and expected_size is not None and file.size != expected_size:
        # Settled without reading: the file may be a sparse one of a terabyte.
        return LoadResult(False, (reason,), bytes=file.size, mtime_ns=file.mtime_ns)
    refusal: Exception | None = Unreadable(reason) if reason else None
    structure: Structure | None = None
    stages: dict[str, float] = {}
    begin = perf_counter()
    if spec is not None and not reason:
        try:
            structure = _structure(file, spec, reader, check)
        except (Unreadable, NoAnswer, MemoryError) as error:
            refusal = error
    stages["structure"] = perf_counter() - begin
    scanned = scan(file, structure.regions if structure else (), progress)
    stages |= scanned.stages
    reasons, notes = list[str](), list[str]()
    if expected_sha256 is not None and scanned.sha256 != expected_sha256:
        refusal = Unreadable(
            f"differs from what was sealed: sha256 {scanned.sha256[:12]}…, not {expected_sha256[:12]}…"
        )
    elif scanned.wrong_crc:
        refusal = Unreadable(wrong_crc(scanned.wrong_crc))
    elif structure is not None and spec is not None:
        begin = perf_counter()
        try:
            content = structure.content(scanned)
            file.check_unchanged()
        except (Unreadable, NoAnswer, MemoryError) as error:
            refusal = error
        else:
            reasons, notes = _judge(content, spec)
        stages["content"] = perf_counter() - begin
    if refusal is not None:
        reasons = [NO_MEMORY if isinstance(refusal, MemoryError) else str(refusal)]
    return LoadResult(
        not reasons,
        tuple(reasons),
        tuple(notes),
        file.size,
        scanned.sha256,
        file.mtime_ns,
        stages,
        unknown=isinstance(refusal, (NoAnswer, MemoryError)),
        unsupported=isinstance(refusal, Unsupported),
    )


def _load_folder(folder: Folder, spec: Spec | None, check: Check | None) -> LoadResult:
    assert spec is not None
    begin = perf_counter()
    reasons, notes, refusal = list[str](), list[str](), None
    try:
        folder.look()
        structure = _structure(folder, spec, "restricted", check)
        content = structure.content(Scan())
        folder.check_unchanged()
    except (Unreadable, NoAnswer, MemoryError) as error:
        refusal = error
        reasons = [NO_MEMORY if isinstance(error, MemoryError) else str(error)]
    else:
        reasons, notes = _judge(content, spec)
    return LoadResult(
        not reasons,
        tuple(reasons),
        tuple(notes),
        folder.size,
        stages={"content": perf_counter() - begin},
        unknown=isinstance(refusal, (NoAnswer, MemoryError)),
        unsupported=isinstance(refusal, Unsupported),
    )


def member_spec(spec: Spec, path: str) -> Spec | None:
    """How a file of a folder that `spec` is for is read by itself; None: by its digest alone. `path`: in the folder."""
    formats = part_of("formats", "table")
    return None if formats is None else formats.member_spec(spec, path)


def _size_problem(file: OpenFile, spec: Spec | None, expected_size: int | None) -> str:
    if expected_size is not None and file.size != expected_size:
        word = "truncated" if file.size < expected_size else "too long"
        return f"{word}: {file.size:,} of {expected_size:,} bytes"
    if spec is None:
        return ""
    if file.size == 0:
        return "is empty (zero bytes)"
    if file.size < spec.min_bytes:
        return f"is too small: {file.size:,} bytes, at least {spec.min_bytes:,} asked for"
    return ""


def _structure(file: OpenFile | Folder, spec: Spec, reader: Reader, check: Check | None) -> Structure:
    # Imported where needed: a worker for JSON files starts without the rest.
    if spec.load == "command":
        from sweepstack.loaders.command import CommandFile

        return CommandFile(file, spec.run, spec.trust, check)
    if spec.load not in CORE:
        formats = part_of("formats", "table")
        if formats is None:
            raise NoAnswer(f"load: {spec.load} belongs to {not_here('formats')}")
        return formats.structure(file, spec)  # type: ignore[no-any-return]
    if isinstance(file, Folder):
        raise NoAnswer(f"is a folder, and load: {spec.load} is for a file; folders take {', '.join(sorted(FOLDERS))}")
    if spec.load == "json":
        from sweepstack.loaders.json_file import JsonFile

        return JsonFile(file)
    if spec.load == "parquet":
        from sweepstack.loaders.parquet_file import ParquetFile

        return ParquetFile(file)
    if spec.load == "csv":
        from sweepstack.loaders.csv_file import CsvFile

        return CsvFile(file)
    if spec.load in ("npz", "npy"):
        from sweepstack.loaders.numpy_files import NpyFile, NpzFile

        return NpzFile(file) if spec.load == "npz" else NpyFile(file)
    if spec.load == "safetensors":
        from sweepstack.loaders.safetensors_file import SafetensorsFile

        return SafetensorsFile(file)
    if reader == "torch":
        from sweepstack.loaders.torch_files.archive import TorchLoaded

        return TorchLoaded(file)
    from sweepstack.loaders.torch_files.archive import TorchZip

    return TorchZip(file)


def _judge(content: Content, spec: Spec) -> tuple[list[str], list[str]]:
    reasons: list[str] = []
    notes = list(content.notes)
    missing = [key for key in spec.keys if key not in content.names]
    if missing:
        reasons.append(f"lacks {some(missing)}")
    unknown = [] if isinstance(spec.finite, str) else [one for one in spec.finite if not _names(one, content.names)]
    if unknown:
        reasons.append(f"holds nothing that is named {some(unknown)}, which must be finite")
    beside = bool(content.floats - {one.name for one in content.nonfinite})
    failing = [one for one in content.nonfinite if _fails(one, spec, beside)]
    if failing:
        reasons.append(_nonfinite(failing) + _by_design(failing))
    if noted := [one for one in content.nonfinite if one not in failing]:
        notes.append(_nonfinite(noted))
    if content.tensorless:
        (reasons if spec.keys or spec.plausible == "require" else notes).append("holds no tensor")
    odd = _implausible(content, spec)
    if spec.plausible == "require":
        reasons += odd
    else:
        notes += odd
    return reasons, notes


def _names(part: str, names: Iterable[str]) -> bool:
    """Whether `part` is, at the dots, a part of one of these names: `mask` of `blocks.0.mask`, not of `mask2`."""
    return any(f".{part}." in f".{name}." for name in names)


def _fails(one: NonFinite, spec: Spec, beside: bool) -> bool:
    """Whether these numbers fail the file. A single infinity is what training code keeps `beside` its weights where
    there is no best value yet; a NaN is never meant."""
    if spec.finite == "report":
        return False
    named = spec.finite != "require" and any(_names(part, [one.name]) for part in spec.finite)
    if spec.finite != "require" and not named:
        return False
    meant = (one.single and beside and not named) or any(_names(part, [one.name]) for part in spec.infinite)
    return bool(one.bad.nan) or not meant


def _nonfinite(found: Sequence[NonFinite]) -> str:
    return f"{sum(one.bad.total for one in found):,} non-finite ({some([one.name for one in found])})"


def _by_design(found: Sequence[NonFinite]) -> str:
    """What helps where all are infinities: masks are made of them."""
    if any(one.bad.nan for one in found):
        return ""
    last = list(dict.fromkeys(one.name.rpartition(".")[2] for one in found))
    return f", none of them NaN; if that is by design, say infinite: [{some(last)}]"


def _implausible(content: Content, spec: Spec) -> list[str]:
    """What a finished training run hardly leaves behind, in words; see `plausible` in docs/stack-config.md."""
    found = []
    named = [key for key in spec.keys if key in content.constant]
    if content.floats and content.floats == content.constant:
        found.append(f"looks untrained: every number is the same within {some(sorted(content.constant))}")
    elif named:
        found.append(f"looks untrained: every number is the same within {some(named)}")
    if content.absent and spec.finite != "report":
        found.append(f"has null or a text in place of a number ({some(content.absent)})")
    return found
