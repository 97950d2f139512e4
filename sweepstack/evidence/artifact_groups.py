"""Artifacts of several files in a sealed cell: which files, how each is read, what is said of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sweepstack.core.records import ArtifactSpec, FileEntry, Manifest, ReceiptGroup
from sweepstack.loaders.base import LoadResult, Spec
from sweepstack.loaders.load import member_spec
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.groups import is_group, members


@dataclass
class Group:
    """`units`: folder (`checkpoint-500/`) or file → its files. `read`: folder → what reading it as a whole found."""

    path: str
    spec: ArtifactSpec
    units: dict[str, list[str]]
    read: dict[str, LoadResult] = field(default_factory=dict)

    @property
    def folders(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each folder, and its files by their paths in it."""
        for unit, files in self.units.items() if self.path.endswith("/") else ():
            yield unit, tuple(file.removeprefix(unit) for file in files)

    def member_specs(self) -> dict[str, Spec | None]:
        """File → how it is read by itself."""
        if not self.path.endswith("/"):
            return dict.fromkeys(self.units, self.spec)
        whole = self.spec.load == "command"
        return {
            unit + name: None if whole else member_spec(self.spec, name)
            for unit, names in self.folders
            for name in names
        }

    def record(self, files: Sequence[FileEntry], verdicts: Mapping[str, str]) -> ReceiptGroup:
        """For the receipt. `files`: those of the manifest. `verdicts`: of each that was read by itself."""
        own = {file for files in self.units.values() for file in files}
        entries = sorted((file.path, file.size, file.sha256) for file in files if file.path in own)
        said = [f"{unit} {'; '.join(result.reasons)}" for unit, result in self.read.items() if not result.ok]
        said += [f"{path} {verdict}" for path, verdict in verdicts.items() if path in own and verdict != "ok"]
        unread = [unit for unit, _ in self.folders if unit not in self.read]
        return ReceiptGroup(
            path=self.path,
            loader=self.spec.load,
            files=len(entries),
            size=sum(size for _, size, _ in entries),
            digest=digest_of(entries),
            verdict="; ".join(said) or ("is not there" if unread or not entries else "ok"),
        )


def groups_of(specs: Mapping[str, ArtifactSpec], manifest: Manifest) -> list[Group]:
    """The artifacts of several files among `specs`, which have the names of one cell. Our own log is no artifact."""
    paths = [file.path for file in manifest.files if file.role != "log"]
    return [Group(path, spec, members(path, paths)) for path, spec in specs.items() if is_group(path)]


def member_of(groups: Sequence[Group]) -> dict[str, Spec | None]:
    """File → how it is read by itself, for all files of these. One that two artifacts mean is read as the first that
    reads it says; each folder is read as a whole besides."""
    found: dict[str, Spec | None] = {}
    for group in groups:
        for file, spec in group.member_specs().items():
            found[file] = found.get(file) or spec
    return found
