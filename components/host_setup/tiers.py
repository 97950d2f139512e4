"""The set-up step that checks that a host's durable tier is mounted.

After a restart it may not be mounted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from components.host_setup.steps import Step

NAME = "tiers"
_LOOK = r"""
for mount in "$@"; do
    at="$SWEEPSTACK_ROOT/boxes/$SWEEPSTACK_BOX/$mount"
    [ -L "$at" ] || {
        echo "$mount of this box is no link to a tier that survives it: the box was made without" >&2
        exit 1; }
    [ -r "$at/place.json" ] || {
        echo "$(readlink "$at") is not there: its file system is not mounted. Mount it in the platform's console" >&2
        exit 1; }
    name=$(echo "$mount" | sed 's/^mnt.//; s/[^a-z0-9]/_/g')
    echo "tier_$name=$(readlink "$at") ($(sed 's/.*"id":"\([^"]*\)".*/\1/' "$at/place.json"))"
    df -Pk "$at" | awk -v n="$name" 'NR == 2 { print "tier_" n "_free_gb=" int($4 / 976562.5) }'
    df -Pi "$at" 2>/dev/null | awk -v n="$name" 'NR == 2 && $4 ~ /^[0-9]+$/ { print "tier_" n "_free_inodes=" $4 }'
done
"""


def tiers(mounts: Iterable[str]) -> Step:
    """`mounts`: paths on the box (`mnt/durable`) that show a place of the host. Facts: where each lies and its id, what
    is free there (inodes are absent where the file system does not count them). Fails where one is not mounted."""
    words = " ".join(shlex.quote(mount) for mount in sorted(mounts))
    return Step(NAME, f"sh -c {shlex.quote(_LOOK)} sh {words}", None, "looking at what outlives it")
