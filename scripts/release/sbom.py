"""The list of what the package brings, as CycloneDX: uv reads it out of the lock."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path

from scripts.lib.console import Console
from scripts.lib.places import Places
from scripts.lib.processes import run
from scripts.lib.wheels import install_uv, uv_environment

_WORDS = [
    "export",
    "--frozen",
    "--offline",
    "--quiet",
    "--format",
    "cyclonedx1.5",
    "--no-default-groups",
    "--all-extras",
]
_SECONDS = 120.0


def sbom(root: Path, tree: Path, wheel: Path, version: str, epoch: int) -> str:
    """The document, as JSON text. The same tree, wheel and second give the same text: its serial number is made of the
    wheel's digest.

    Raises:
        SetupError: uv can't be had, or its own words.
    """
    places, env = Places.of(root, os.environ), dict(os.environ)
    pins = root / "scripts" / "requirements-uv.txt"
    # Always the pinned one: another uv on PATH may write another document.
    uv = install_uv(places.cache, pins, env, Console(), threading.Event())
    said = run([uv, *_WORDS], what="uv export", deadline=_SECONDS, cwd=tree, env=uv_environment(env))
    document = json.loads(said[said.index("{") :])
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, digest).urn
    document["metadata"]["timestamp"] = datetime.fromtimestamp(epoch, UTC).isoformat()
    document["metadata"]["component"] |= {
        "version": version,
        "purl": f"pkg:pypi/sweepstack@{version}",
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    return json.dumps(document, indent=1) + "\n"
