"""Of several sealed copies of a cell in a bucket, the one that comes back. The real rclone, on folders."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from sweepstack.onbox.runner.rclone import Remote
from sweepstack.onbox.runner.records import Journal
from sweepstack.onbox.runner.upload import Uploads


def test_a_clock_that_was_set_back_brings_no_earlier_seal(tmp_path: Path) -> None:
    """The later seal is of a box whose clock is a year behind. A copy that does not read is left where it is."""
    sealed = tmp_path / "bucket" / "id" / "sealed"
    for folder, manifest in (
        ("a/1-aa", {"sealed_at": "2026-11-21T09:00:00Z"}),
        ("a/3-cc", {"sealed_at": "2025-11-21T10:00:00Z", "retry": 1}),
        ("a/2-bb", {"sealed_at": "2025-11-21T09:00:00Z", "retry": 1}),
        ("b/1-dd", "not what the runner writes"),
        ("c/1-ee", {"sealed_at": "2026-11-21T09:00:00Z"}),
    ):
        (sealed / folder).mkdir(parents=True)
        (sealed / folder / "manifest.json").write_text(json.dumps(manifest))
    remote = Remote({"source": "s3://bucket"}, dict(os.environ), [], threading.Event())
    remote.root = str(tmp_path / "bucket")
    journal = Journal(tmp_path / "journal.jsonl")
    uploads = Uploads(tmp_path / "cells", tmp_path / "checkpoints", "id", "box-0", journal, lambda: None)
    assert uploads._sealed_there(remote) == [("a", "a/3-cc"), ("c", "c/1-ee")]
