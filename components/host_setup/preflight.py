"""The first step on every host: what it is, as facts that the state keeps and `pulumi up` shows."""

from __future__ import annotations

import shlex

from components.host_setup.steps import Step
from sweepstack.channel.interpreters import PYTHON, finding

NAME = "preflight"
_LOOK = r"""
"$q" -c 'import sys; print("python=%d.%d.%d" % sys.version_info[:3]); sys.exit(sys.version_info < (3, 8))' || {
    echo "$q is missing here, or older than Python 3.8, which everything on a box needs" >&2; exit 1; }
echo "clock=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
df -Pk "$SWEEPSTACK_ROOT" | awk 'NR == 2 { print "free_gb=" int($4 / 976562.5) }'
df -Pi "$SWEEPSTACK_ROOT" 2>/dev/null | awk 'NR == 2 && $4 ~ /^[0-9]+$/ { print "free_inodes=" $4 }'
echo "system=$(uname -sm)"
"""


def preflight(python: str = PYTHON) -> Step:
    """`python`: see `finding`. Facts: python, clock (UTC, when it was looked at), free_gb, free_inodes (absent where
    the file system does not count them), system. Fails without Python 3.8."""
    return Step(NAME, f"sh -c {shlex.quote(finding(python) + _LOOK)}", None, "looking at the host")
