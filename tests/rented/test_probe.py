"""`sweepctl profile explain --box` on a rented box: the facts of its platform, asked of the machine itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.commands import assert_failed, ok
from tests.rented.world import rented, without_internet
from tests.simulators.rental import stack_of, whole_rentals


@pytest.mark.proof  # on a local box: tests/extensions/authoring/test_profile.py
@pytest.mark.parametrize("platform", whole_rentals())
def test_a_rented_box_is_asked_for_the_facts_of_its_platform(platform: str, tmp_path: Path) -> None:
    """Its tiers, its card, and the key that the platform puts there; nothing is left on it, unless a stop is to come.
    These machines have no internet, so what the profile says of routes is not judged here."""
    with rented(platform, tmp_path, stack_of(platform)) as world:
        stack = world.stack
        without_internet(stack)
        ok(stack.run("pulumi", "stack", "init", stack.name, "--non-interactive"))
        ok(stack.up(timeout=400))
        shown = stack.sweepctl("profile", "explain", "--box", "box-0", "--json", timeout=300)
        assert shown.rc in (0, 1), str(shown)
        document = shown.json()
        assert document["platform"] == platform
        verdicts = [
            (one["fact"], one["verdict"]) for one in document["answers"] if one["fact"] != "china_mirror_needed"
        ]
        assert {verdict for _, verdict in verdicts} == {"agrees", "told"}, document["answers"]
        assert verdicts.count(("tiers", "agrees")) == 3, document["answers"]
        assert ("own_key", "agrees") in verdicts, document["answers"]
        assert_failed(
            stack.sweepctl("profile", "explain", "--box", "box-0", "--stop", "after", timeout=300),
            "was never left there",
        )
        begun = stack.sweepctl("profile", "explain", "--box", "box-0", "--stop", "before", timeout=300)
        assert "--stop after" in begun.text, str(begun)
        assert_failed(
            stack.sweepctl("profile", "explain", "--box", "box-0", "--stop", "after", timeout=300),
            "was not stopped since",
        )
