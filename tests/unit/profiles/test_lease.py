"""The lease in the stack config: where it must stand, and what a box of each platform can do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.box import job_input
from sweepstack.core.lease_terms import LeaseFacts
from sweepstack.operations.lease_renewal import on_box
from sweepstack.platforms import registry
from sweepstack.platforms.registry import load_platform
from sweepstack.profiles.load import FOLDER, load_profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, load, refusal

PLATFORMS = Path(registry.__file__).parent
VOLUME = "    mounts: {/ckpt: {source: kept}}\n"


def text(platform: str, lease: str, more: str = "") -> str:
    budget = f"    budget: {{usd: 60}}\n    when_done: keep\n{lease}{more}    boxes:"
    host = "want: running, host: root@192.0.2.7" if platform in ("autodl", "lambda") else "want: running"
    price = f"overrides: {{{platform}: {{price_per_hour: 0.5}}}}"
    return (
        GOOD.replace("candidates: [local]", f"candidates: [{platform}]")
        .replace("overrides: {local: {price_per_hour: 0.12}}", price)
        .replace("want: running", host)
        .replace("    boxes:", budget)
    )


def plan(root: Path, platform: str, lease: str = "    lease: 2h\n", more: str = "") -> Plan:
    profile = load_profile(platform).model_copy(update={"unavailable": ""})
    return resolve(load(root, text(platform, lease, more)), {platform: profile})


@pytest.mark.parametrize("platform", ["runpod", "vastai", "autodl", "lambda"])
def test_a_platform_that_sends_a_bill_needs_a_lease_or_none(tmp_path: Path, platform: str) -> None:
    with pytest.raises(Exception, match=r"the config must say lease: 2h .* or lease: none"):
        plan(tmp_path, platform, "")
    none = plan(tmp_path, platform, "    lease: none\n")
    assert (none.job.lease, none.lease_text) == (None, "none")
    assert "lease none" in none.lease_words[0]
    assert "lease" not in job_input(none.job, none.boxes[0], "sha256:0")


def test_where_no_bill_is_sent_there_is_no_lease(tmp_path: Path) -> None:
    resolved = resolve(
        load(tmp_path, GOOD.replace("    boxes:", "    lease: 2h\n    boxes:")), {"local": load_profile("local")}
    )
    assert (resolved.job.lease, resolved.lease_text, resolved.lease_words) == (None, "", ())


@pytest.mark.parametrize("lease", ["9m", "soon", "0h", "2", "[2h]"])
def test_what_is_no_lease(tmp_path: Path, lease: str) -> None:
    said = refusal(tmp_path, text("runpod", f"    lease: {lease}\n"))
    assert "a duration of 10m or more, such as 2h, or none" in said


def test_each_platform_s_own_way(tmp_path: Path) -> None:
    pod = plan(tmp_path, "runpod").job.lease
    assert pod == LeaseFacts(text="2h", seconds=7200, by="key", native="stop", key="RUNPOD_API_KEY")
    assert "unproved: no live run has shown that this key works" in plan(tmp_path, "runpod").lease_words[0]
    vast = plan(tmp_path, "vastai").job.lease
    assert vast == LeaseFacts(text="2h", seconds=7200, by="key", native="stop", key="CONTAINER_API_KEY")
    autodl = plan(tmp_path, "autodl").job.lease
    assert autodl == LeaseFacts(text="2h", seconds=7200, by="ssh", native="关机", command="shutdown")
    assert plan(tmp_path, "lambda").job.lease == LeaseFacts(text="2h", seconds=7200)
    assert "can only tell, and bills on" in plan(tmp_path, "lambda").lease_words[0]


def test_a_stop_that_wipes_the_journal_is_none_that_a_box_makes(tmp_path: Path) -> None:
    mounted = plan(tmp_path, "runpod", more=VOLUME)
    assert mounted.job.lease is not None
    assert mounted.job.lease.kills == ("scratch", "data")
    assert "can only tell, and bills on: a stop wipes scratch and data" in mounted.lease_words[0]
    kept = plan(tmp_path, "vastai", more=VOLUME).job.lease
    assert kept is not None
    assert kept.kills == ()


def test_the_box_is_told_the_request_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_BASE_URL", "https://api.example")
    monkeypatch.delenv("VAST_URL", raising=False)
    monkeypatch.setenv("RUNPOD_API_KEY", "my-own-key")
    facts = LeaseFacts(text="2h", seconds=7200, by="key", native="stop", key="RUNPOD_API_KEY")
    told = on_box(facts, load_platform("runpod"), "abc123")
    first, second = told["how"].pop("requests")
    how = {"by": "key", "native": "stop", "key": "RUNPOD_API_KEY", "proved": None}
    assert told == {"seconds": 7200, "kills": [], "how": how}
    url = "https://api.example/v2/pods/abc123/action"
    assert first == {"method": "POST", "url": url, "body": {"action": "stop"}}
    assert (second["method"], second["url"]) == ("POST", "https://api.example/graphql")
    assert "podStop(" in second["body"]["query"]
    assert second["body"]["variables"] == {"id": "abc123"}
    (asked,) = on_box(facts, load_platform("vastai"), "4711")["how"]["requests"]
    assert (asked["method"], asked["body"]) == ("PUT", {"state": "stopped"})
    assert asked["url"] == "https://console.vast.ai/api/v0/instances/4711/"
    assert on_box(facts, load_platform("local"), "x")["how"] == {}
    assert on_box(None, load_platform("local"), "x") == {}


def test_which_platforms_hold_a_box_before_a_launch(tmp_path: Path) -> None:
    """The profile says it, the adapter does it: both ask for a box with a lease, and no other adapter knows of one."""
    pod, host = plan(tmp_path, "runpod"), plan(tmp_path, "lambda")
    assert "its start command stops it 2h after the last look" in pod.lease_words[1]
    assert "no lease holds it there: 2h after it was rented, it is named" in host.lease_words[1]
    held = {
        name
        for name in (path.stem for path in FOLDER.glob("*.md"))
        if (own := load_profile(name).own_key) is not None and own.from_start
    }
    sends = {path.parent.name for path in PLATFORMS.glob("*/*.py") if "renting.lease_text(" in path.read_text()}
    assert held == sends == {"runpod", "vastai"}
