"""`sweepctl show BOX --manifests`: the objects of a box in its cluster, as YAML, as they are applied."""

from __future__ import annotations

import sys

import yaml  # type: ignore[import-untyped]  # comes with the engine's SDK

from sweepstack.cli.box_access import find_box
from sweepstack.cli.output import YES, Out, aside
from sweepstack.onbox.common.errors import No, SweepstackError, Unsupported, Unsure
from sweepstack.onbox.host.capabilities import HasManifests
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.registry import need


def show_manifests(target: Target, box: str, out: Out) -> int:
    """Exit 0: shown. Raises No where the box has none, Unsure."""
    entry = find_box(target, box)
    try:
        platform = need(entry.context().platform, HasManifests)
        found, changed = platform.manifests(entry.native_id, entry.account)
    except Unsupported as error:
        raise No(f"box {box}: {error}") from error
    except SweepstackError as error:
        raise Unsure(f"box {box}: {error}", [f"sweepctl status --stack {target.stack}"]) from error
    out.document({"stack": target.stack, "box": box, "manifests": found, "changed": changed, "next": []})
    if not out.as_json:
        sys.stdout.write(yaml.safe_dump_all(found, sort_keys=False))
        aside(*changed)
    return YES
