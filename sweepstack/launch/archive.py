"""One version of the code as a tar file whose bytes depend on its content alone."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sweepstack.core.workdir import Shipment
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import ConfigError, EvidenceDamaged


def pack(workdir: Path, shipment: Shipment) -> bytes:
    """The tar of `shipment`, which was collected from `workdir`. The same shipment gives the same bytes.

    Raises ConfigError when a file is not what it was when it was collected.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in shipment.files:
            data = (workdir / file.path).read_bytes()
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise ConfigError(f"{workdir} changed while it was being read; run the command again")
            info = tarfile.TarInfo(file.path)
            info.size, info.mode, info.mtime = len(data), file.mode, 0
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def members(archive: bytes, digest: str) -> dict[str, tuple[int, str]]:
    """The files of an archive: path → its mode, SHA-256 as hex. Raises EvidenceDamaged as `unpacked` does."""
    with unpacked(archive, digest) as files:
        return {name: (mode, hashlib.sha256(file.read_bytes()).hexdigest()) for name, file, mode in files}


@contextlib.contextmanager
def unpacked(archive: bytes, digest: str) -> Iterator[list[tuple[str, Path, int]]]:
    """The files of an archive as (path, local file, mode), in a folder that lives as long as the context.

    Raises EvidenceDamaged for a tar that is none, that holds anything but plain files with plain paths, or whose
    content is not the version `digest`.
    """
    with tempfile.TemporaryDirectory(prefix="sweepstack-code-") as folder:
        files, content = [], []
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
                for number, info in enumerate(tar):
                    parts = PurePosixPath(info.name).parts
                    source = tar.extractfile(info) if info.isreg() else None
                    if source is None or not parts or info.name.startswith("/") or ".." in parts:
                        raise EvidenceDamaged(f"the archive of {digest} holds {info.name!r}, which is no plain file")
                    data = source.read()
                    target = Path(folder) / str(number)
                    target.write_bytes(data)
                    files.append((info.name, target, info.mode))
                    content.append([info.name, info.mode, hashlib.sha256(data).hexdigest()])
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise EvidenceDamaged(f"the archive of {digest} can't be read: {error}") from error
        if digest_of(content) != digest:
            raise EvidenceDamaged(
                f"the archive of {digest} in the evidence was edited or damaged: its content is not what its name says"
            )
        yield files
