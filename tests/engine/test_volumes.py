"""Volumes in a stack of their own: made, mounted by a sweep, and kept until their files are safe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import Result, assert_failed, ok
from tests.engine.harness import Stack

KEEP = """\
config:
  sweepstack:store:
    platform: local
    volumes:
      abl-store: {{size: 2GB, keep_until: 2026-01-31}}
      other: {{size: 1GB}}
    pull_to: {evidence}
"""


class Keeper:
    """The stack `keep` beside a sweep, in the same checkout and backend."""

    def __init__(self, sweep: Stack) -> None:
        self.sweep = sweep
        self.file = sweep.checkout / "stacks" / "Pulumi.keep.yaml"
        self.file.write_text(KEEP.format(evidence=sweep.base / "keeper"))
        ok(sweep.run("pulumi", "stack", "init", "keep", "--non-interactive"))

    def pulumi(self, *words: str) -> Result:
        """`pulumi <words> --stack keep`."""
        yes = ("--yes", "--skip-preview") if words[0] in ("up", "destroy") else ()
        return self.sweep.run("pulumi", *words, "--stack", "keep", "--non-interactive", *yes)

    def approve(self, *words: str) -> Result:
        """`sweepctl approve --stack keep <words>`, or `give-up` where the words name a loss."""
        verb = "give-up" if any(word.startswith("data/") for word in words) else "approve"
        return self.sweep.run("sweepctl", verb, "--stack", "keep", *words)

    def volumes(self) -> list[Path]:
        """The content of every volume that is there."""
        return self.sweep.volume_contents()


@pytest.fixture
def keeper(make_stack: Callable[..., Stack]) -> Keeper:
    """A sweep that mounts `abl-store`, and the stack that keeps it; neither is up."""
    sweep = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    mount = {"source": "abl-store", "keep_until": "2026-01-31"}
    sweep.edit_config(lambda config: config.update(mounts={"/ckpt": mount}))
    return Keeper(sweep)


def test_a_volume_outlives_its_sweep_and_ends_when_what_is_on_it_is_safe(keeper: Keeper) -> None:
    """The store's destroy is refused until its sweep has finished and a person approved what is on the volumes."""
    sweep = keeper.sweep
    preview = ok(keeper.pulumi("preview"))
    assert "volume abl-store: 2 GB, $0.00/month, was to be kept until 2026-01-31, which is over" in preview.text
    ok(keeper.pulumi("up"))
    assert len(keeper.volumes()) == 2
    ok(sweep.up())
    sweep.wait_done()
    assert_failed(keeper.approve(), "box box-0 of t", "not approved; nothing was written", "sweepctl finish --stack t")
    assert_failed(keeper.pulumi("destroy"), "REFUSED. Nothing was deleted", "not approved", "used by", "waiting costs")
    sweep.run_loop()
    status = ok(sweep.sweepctl("status"))
    assert "volume abl-store: $0.00/month, was to be kept until 2026-01-31, which is over" in status.text
    ok(sweep.destroy())
    kept = [path for path in keeper.volumes() if list(path.iterdir())]
    assert len(kept) == 1, "the sweep's end took what is on its volume with it"
    asked = keeper.approve()
    assert_failed(asked, "abl-store: t (", "2 of 2 verified", "no sweep on record ever mounted it", "no terminal")
    digest = re.search(r"approve --stack keep (sha256:[0-9a-f]{64})", asked.text)
    assert digest is not None
    ok(keeper.approve(digest[1]))
    copy = sweep.evidence / "cells" / "seed0" / "model.safetensors"
    whole = copy.read_bytes()
    copy.write_bytes(b"x" * len(whole))
    ok(keeper.pulumi("up"))
    assert_failed(keeper.pulumi("destroy"), "REFUSED. Nothing was deleted", "t: seed0")
    assert kept[0].is_dir()
    copy.write_bytes(whole)
    ok(keeper.pulumi("destroy"))
    assert keeper.volumes() == []


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_volume.py
def test_one_volume_leaves_and_is_given_up_by_name(keeper: Keeper) -> None:
    """`want: gone` with the approval in the same change; without one it is refused, and the other one stays."""
    ok(keeper.pulumi("up"))
    keeper.file.write_text(keeper.file.read_text().replace("size: 1GB", "size: 1GB, want: gone"))
    assert_failed(keeper.pulumi("up"), "REFUSED. Nothing was deleted", "not approved")
    given = ok(keeper.approve("data/other", "--reason", "a try"))
    assert "ABANDONED  other" in given.text
    ok(keeper.pulumi("up"))
    assert len(keeper.volumes()) == 1
    assert_failed(keeper.pulumi("destroy"), "Volume abl-store")
