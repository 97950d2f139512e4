"""Brings one sealed cell into object storage, by way of this machine's cache.

A file comes from the box only when neither the bucket nor the cache has it right. What a cut left is gone on with, on
both ways; the manifest goes up last, so that a cell counts only when all of it is there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from sweepstack.core.records import FileEntry
from sweepstack.evidence.manifest import manifest_digest
from sweepstack.evidence.pull_cell import BoxFiles, PullResult, inside, is_right
from sweepstack.evidence.s3.cell_store import S3Copies, is_local, seal_of
from sweepstack.onbox.common.canonical import fsync_directory


class ObjectCopy(BoxFiles):
    """One sealed cell on its way from a box into a bucket."""

    def run(self) -> PullResult:
        """Stores what is not there and right. Raises ManifestRefused, Unreachable, EvidenceError, OSError."""
        copies = self.store.copies
        assert isinstance(copies, S3Copies)
        if self.settled.holds(self.manifest.cell, manifest_digest(self.data)):
            self._say(self.total)
            return PullResult(self.manifest.cell, "current")
        if stays := self.later_here():
            return PullResult(self.manifest.cell, "current", (), (stays,))
        self._tidy_partial()
        done = 0

        def say(count: int) -> None:
            nonlocal done
            done += count
            self._say(done)

        put = copies.put(self.data, self.manifest, self._bring, say)
        shutil.rmtree(self.partial, ignore_errors=True)
        state: Literal["pulled", "current"] = "pulled" if put.files else "current"
        return PullResult(self.manifest.cell, state, (), (*self.notes, *put.notes), put.files, self.copied_bytes)

    def _bring(self, file: FileEntry) -> Path:
        """The file in the cache, which gets it from the box where need be."""
        target = self.store.workplace / "cells" / self.manifest.cell / seal_of(manifest_digest(self.data)) / file.path
        if is_local(target, file):
            return target
        if not is_right(self.partial, file):
            self._check_space([file])
            progress, self.progress = self.progress, None  # what counts for a person is that it is in the bucket
            try:
                self._fetch(file, 0)
            finally:
                self.progress = progress
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(inside(self.partial, file.path), target)
        fsync_directory(target.parent)
        return target
