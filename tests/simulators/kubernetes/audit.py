"""What was asked of a cluster's API server by a person's commands: its own record."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": ["admin"]}, {"level": "None"}],
}
"""Of a watch the answer's begin is written down, too: it may have no end."""


def audited(keep: Path) -> list[str]:
    """The options of an API server that keeps such a record below the folder of its cluster, which must not run yet."""
    keep.mkdir(parents=True, exist_ok=True)
    (keep / "audit.json").write_text(json.dumps(_POLICY))
    return ["--audit-policy-file=/mnt/keep/audit.json", "--audit-log-path=/mnt/keep/log/audit.log"]


class Asked:
    """What sweepstack asked since this was made, by the client's own name: (verb, resource) → how often."""

    def __init__(self, keep: Path) -> None:
        self._log = keep / "log/audit.log"
        self._from = self._log.stat().st_size

    def counted(self) -> Counter[tuple[str, str]]:
        with self._log.open("rb") as log:
            log.seek(self._from)
            entries = [json.loads(line) for line in log.read().splitlines()]
        return Counter(
            (str(one["verb"]), str(one.get("objectRef", {}).get("resource", "")))
            for one in entries
            if one["stage"] == ("ResponseStarted" if one["verb"] == "watch" else "ResponseComplete")
            and "httpx" not in one.get("userAgent", "")
        )
