"""The platforms that are entered by SSH: what each verb kills there, who issues it, what a box can't stop by itself,
and when a clock strikes. Expected values are written out: they are read from the facts, and never from the profiles."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from components.box import job_input
from sweepstack.billing.deadlines import countdowns
from sweepstack.billing.ledger import Bill, total
from sweepstack.cli.commands.doctor import store
from sweepstack.cli.commands.doctor.platforms import checks
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.stack_config import StackConfig, StoreConfig, load_any
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.extensions import FOLDERS, adapters
from sweepstack.core.records import LedgerEntry, LedgerPhase
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.operations.market import ask_market
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.sweep.target import Target
from sweepstack.operations.volumes.volumes_now import adapters_of
from sweepstack.profiles.load import load_profile, load_profiles, platforms
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from sweepstack.profiles.volume_stack_plan import plan_store
from sweepstack.status.engine.state import StackState
from tests.unit.config.helpers import GOOD, write

ENTERED = tuple(name for name in platforms() if load_profile(name).ssh is not None and not load_profile(name).scheduled)
"""All whose boxes are reached through the adapter ssh."""
OWN = {"scratch", "data", "durable"}

MATRIX: dict[tuple[str, bool, str], set[str]] = {
    # (platform, with a volume, verb): what it kills. A verb that is not here does not exist there.
    ("autodl", False, "stop"): set(),
    ("autodl", False, "destroy"): {"scratch", "data", "system"},
    ("featurize", False, "destroy"): {"scratch", "data"},
    ("generic-ssh", False, "destroy"): OWN,
    ("gpushare", False, "stop"): {"system"},
    ("gpushare", False, "destroy"): OWN | {"system"},
    ("gpushare", True, "stop"): {"system"},
    ("gpushare", True, "destroy"): {"scratch", "data", "system"},
    ("lambda", False, "destroy"): OWN,
    ("lambda", True, "destroy"): {"scratch", "data"},
    ("lanrui", False, "stop"): {"system"},
    ("lanrui", False, "destroy"): {"scratch", "data", "system"},
    ("matpool", False, "destroy"): {"scratch", "data"},
    ("paperspace", False, "stop"): set(),
    ("paperspace", False, "destroy"): OWN,
}
DURABLE = {  # the place that outlives the end of a box: without a volume, with one
    "autodl": ("/root/autodl-fs", None),
    "featurize": ("/home/featurize/work", None),
    "generic-ssh": (None, None),
    "gpushare": (None, "/hy-netdisk"),
    "lambda": (None, "/lambda/nfs/abl-store"),
    "lanrui": ("/home/user/netdisk/data", None),
    "matpool": ("/mnt", None),
    "paperspace": (None, None),
}

KNOWN = tuple(DURABLE)
"""Those of which these tables say more than a profile has to."""


def there(name: str, **facts: Any) -> Profile:
    """The profile as it is once its adapter is installed."""
    return load_profile(name).model_copy(update={"unavailable": "", **facts})


def text(name: str, more: str = "", *, when_done: str = "keep", want: str = "running") -> str:
    return (
        GOOD.replace("candidates: [local]", f"candidates: [{name}]")
        .replace("overrides: {local: {price_per_hour: 0.12}}", f"overrides: {{{name}: {{price_per_hour: 0.5}}}}")
        .replace("want: running", f"want: {want}, host: root@192.0.2.7")
        .replace(
            "    boxes:", f"    budget: {{usd: 60}}\n    when_done: {when_done}\n    lease: none\n{more}    boxes:"
        )
    )


BOXES = "{box-0: {want: running, host: root@192.0.2.7}}"
MOUNTS = "    mounts: {/ckpt: {source: abl-store}}\n"


def plan(root: Path, name: str, profile: Profile | None = None, **asked: Any) -> Plan:
    write(root, text(name, **asked))
    return resolve(StackConfig.load(root, "x"), {name: profile or there(name)})


def refusal(root: Path, name: str, profile: Profile | None = None, **asked: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(root, name, profile, **asked)
    return str(caught.value)


@pytest.mark.parametrize("name", KNOWN)
def test_what_each_verb_kills(name: str) -> None:
    profile = load_profile(name)
    layouts = {False: profile.layout(volume=False)}
    if profile.with_volume is not None:
        layouts[True] = profile.with_volume
    found = {
        (name, volume, verb): set(facts.kills)
        for volume, layout in layouts.items()
        for verb, facts in layout.verbs.items()
    }
    assert found == {key: kills for key, kills in MATRIX.items() if key[0] == name}


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_delete_kills_is_what_the_platform_s_last_verb_does(tmp_path: Path, name: str) -> None:
    """Also where the delete issues less: a box that left the state is watched by nobody until its clock strikes."""
    bare = plan(tmp_path, name)
    assert set(bare.teardown.kills) == MATRIX[name, False, "destroy"]
    assert (bare.durable is None) == (DURABLE[name][0] is None)
    assert bare.site is not None
    if bare.durable is not None:
        assert bare.site.places[bare.durable.tier] == DURABLE[name][0]
    mounted = DURABLE[name][1]
    if mounted is not None:
        made = plan(tmp_path, name, more=MOUNTS)
        assert set(made.teardown.kills) == MATRIX[name, True, "destroy"]
        assert made.site is not None
        assert made.site.places["durable"] == mounted


@pytest.mark.parametrize("name", ENTERED)
def test_all_that_a_later_delete_needs_is_an_input(tmp_path: Path, name: str) -> None:
    """The provider opens no profile: its own model takes what the plan gives, and nothing is lost on the way."""
    made = plan(tmp_path, name)
    facts = TeardownFacts.model_validate(made.teardown.as_inputs())
    assert facts.issue is not None
    assert facts.model_dump(mode="json", exclude_none=True, exclude_unset=True) == made.teardown.as_inputs()
    assert set(facts.paths) == {"scratch", "data", "durable"}  # nothing of ours lies on a system disk


def test_only_where_it_is_proved_does_a_command_end_the_bill(tmp_path: Path) -> None:
    commands = {}
    for name in KNOWN:
        issue = plan(tmp_path, name).teardown.issue
        assert issue is not None
        assert bool(issue.command) != bool(issue.manual)
        commands[name] = issue.command
    assert commands == {name: "shutdown" if name == "autodl" else None for name in KNOWN}


def test_autodl_parks_and_a_person_releases(tmp_path: Path) -> None:
    ends = plan(tmp_path, "autodl").teardown
    assert ends.issue is not None
    assert (ends.issue.native, ends.issue.by) == ("关机", "ssh")
    release = there("autodl").verbs["destroy"]
    assert (release.native, release.irreversible, release.issued_by) == ("释放", True, "person")
    assert "/root/autodl-fs stays" in release.manual
    inputs = ends.as_inputs()
    assert inputs.pop("release") == f"(释放) {release.manual}", "words for a person"
    assert "释放" not in str(inputs)  # what goes into the state knows no way to release
    assert ends.as_inputs()["stop"]["issue"] == {"by": "ssh", "native": "关机", "command": "shutdown"}
    assert ends.stop is not None
    assert ends.stop.bills_after == ("the data disk, at a small rate, until the instance is released",)


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "autodl"])
def test_where_only_a_person_can_end_a_box_the_plan_says_the_step(tmp_path: Path, name: str) -> None:
    made = plan(tmp_path, name)
    (note,) = (note for note in made.notes if "only a person can end a box there" in note)
    assert made.teardown.issue is not None
    assert made.teardown.issue.by == "person"
    assert made.teardown.issue.manual in note
    assert made.teardown.stop is None


def test_a_box_stops_itself_only_where_that_is_proved(tmp_path: Path) -> None:
    assert plan(tmp_path, "autodl", when_done="stop").when_done == "stop"
    for name in KNOWN[1:]:
        said = refusal(tmp_path, name, when_done="stop")
        assert f"{name}: when_done: stop can't be kept there" in said
        assert "What works: pull, verify, then" in said
        assert "Write when_done: keep" in said
        assert plan(tmp_path, name, when_done="keep").when_done == "keep"


def test_a_stop_past_the_budget_is_refused_likewise(tmp_path: Path) -> None:
    def asked(name: str, **wanted: Any) -> Plan:
        write(tmp_path, text(name, **wanted).replace("{usd: 60}", "{usd: 60, stop: true}"))
        return resolve(StackConfig.load(tmp_path, "x"), {name: there(name)})

    with pytest.raises(
        ConfigError, match=r"lambda: budget\.stop: true can't be kept there: .*\. Write budget\.stop: false"
    ):
        asked("lambda")
    with pytest.raises(
        ConfigError, match=r"when_done: stop and budget\.stop: true .* when_done: keep and budget\.stop: fal"
    ):
        asked("lambda", when_done="stop")
    assert asked("autodl", when_done="stop").platform == "autodl"


def test_on_lambda_a_shutdown_bills_on_and_the_refusal_says_what_does_work(tmp_path: Path) -> None:
    said = refusal(tmp_path, "lambda", when_done="stop")
    assert (
        "Lambda has no stop, and an instance whose system was shut down from inside stands in Alert and is billed on"
        in said
    )
    assert "What works: pull, verify, then terminate it in the console or by the API" in said
    assert load_profile("lambda").stop_from_inside == "refuted"


def test_a_stop_that_wipes_what_cells_write_is_no_auto_stop(tmp_path: Path) -> None:
    autodl = there("autodl")
    tiers = {**autodl.tiers, "data": autodl.tiers["data"].model_copy(update={"survives": {"stop": False}})}
    stop = autodl.verbs["stop"].model_copy(update={"kills": ("data",), "keeps": ("scratch", "durable", "system")})
    wiping = autodl.model_copy(update={"tiers": tiers, "verbs": {**autodl.verbs, "stop": stop}})
    assert "关机 wipes data. Write when_done: keep" in refusal(tmp_path, "autodl", wiping, when_done="stop")


@pytest.mark.parametrize("name", KNOWN)
def test_a_box_that_we_can_t_stop_is_not_wanted_stopped(tmp_path: Path, name: str) -> None:
    if name == "autodl":
        assert plan(tmp_path, name, want="stopped").teardown.stop is not None
        return
    said = refusal(tmp_path, name, want="stopped")
    assert "can't be stopped by us" in said
    assert load_profile(name).stop_refused in said


BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)


def bill(*phases: tuple[LedgerPhase, float]) -> Bill:
    """(phase, day) …"""
    entries = [
        LedgerEntry(
            box="a",
            native_id="id-a",
            platform="p",
            account="me",
            phase=phase,
            price_per_hour=0.5,
            at=BEGIN + timedelta(days=day),
        )
        for phase, day in phases
    ]
    (found,) = total(entries, [], BEGIN + timedelta(days=100)).bills
    return found


def struck(made: Plan, found: Bill, day: float) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What strikes → (the moment, what it kills)."""
    clocks = countdowns(made.teardown.clocks, found, BEGIN + timedelta(days=day))
    return {clock.what: (f"{clock.at:%Y-%m-%d %H:%M}" if clock.at else "", clock.kills) for clock in clocks}


ONCE = (("running", 0), ("stopped", 1))
TWICE = (*ONCE, ("running", 5), ("stopped", 6))


def test_autodl_releases_after_fifteen_days_in_a_row(tmp_path: Path) -> None:
    """C03: the date, from the stop that counts; told before it comes."""
    made = plan(tmp_path, "autodl")
    dies = ("scratch", "data", "system")
    assert struck(made, bill(*ONCE), 2)["released by AutoDL"] == ("2026-12-07 09:00", dies)
    assert struck(made, bill(*TWICE), 7)["released by AutoDL"] == ("2026-12-12 09:00", dies)
    assert struck(made, bill(("running", 0)), 7) == {}
    first = countdowns(made.teardown.clocks[:1], bill(*ONCE), BEGIN + timedelta(days=14))[0]
    assert first.text() == "released by AutoDL in 2 d (2026-12-07 09:00 UTC): kills scratch, data, system"
    assert first.soon


@pytest.mark.parametrize(
    ("platform", "verb", "words"),
    [
        ("runpod", "stop", "volume"),
        ("vastai", "stop", "disk"),
        ("lanrui", "stop", "data disk"),
        ("paperspace", "stop", "storage"),
        ("lambda", "destroy", "file system"),
    ],
)
def test_c04_what_goes_on_billing_after_a_verb_is_named(platform: str, verb: str, words: str) -> None:
    """C04: a stop is never told as the end of the bill where it is not."""
    layout = load_profile(platform).layout(volume=platform == "lambda")
    said = " ".join(layout.verbs[verb].bills_after)
    assert words in said, said


def test_gpushare_wipes_after_a_day_releases_after_ten_and_counts_from_the_first_stop(tmp_path: Path) -> None:
    """C03: the same clock with two deadlines."""
    bare, mounted = plan(tmp_path, "gpushare"), plan(tmp_path, "gpushare", more=MOUNTS)
    once = struck(bare, bill(*ONCE), 1.5)
    assert once["/hy-tmp is wiped"] == ("2026-11-23 09:00", ("scratch", "data", "durable"))
    assert once["released by 恒源云"] == ("2026-12-02 09:00", ("scratch", "data", "durable", "system"))
    again = struck(mounted, bill(*TWICE), 7)
    assert again["/hy-tmp is wiped"] == ("2026-11-23 09:00", ("scratch", "data"))
    assert again["released by 恒源云"] == ("2026-12-02 09:00", ("scratch", "data", "system"))
    (purge,) = (what for what in again if what.startswith("arrears: at noon of the last day personal data"))
    assert "(15 d after they begin)" in purge
    assert again[purge] == ("", ("scratch", "data", "durable", "system"))  # when arrears began is not ours to know


def test_matpool_drops_what_a_save_saved_after_a_day(tmp_path: Path) -> None:
    found = struck(plan(tmp_path, "matpool"), bill(*ONCE), 1.5)
    assert found == {"what 'save and stop' saved is dropped (nominally)": ("2026-11-23 09:00", ("scratch", "data"))}


@pytest.mark.parametrize("name", ["featurize", "lanrui", "paperspace"])
def test_a_clock_that_a_start_winds_is_a_note_and_no_countdown(tmp_path: Path, name: str) -> None:
    made = plan(tmp_path, name)
    assert made.teardown.clocks == ()
    assert any("a cell that runs then is cut off" in note for note in made.notes)


def test_a_price_that_nobody_quotes_has_to_be_written(tmp_path: Path) -> None:
    for name, bills in (("autodl", " (it bills in CNY)"), ("lambda", ""), ("generic-ssh", "")):
        write(tmp_path, text(name).replace(f"    overrides: {{{name}: {{price_per_hour: 0.5}}}}\n", ""))
        with pytest.raises(ConfigError) as caught:
            resolve(StackConfig.load(tmp_path, "x"), {name: there(name)})
        said = f"the platform quotes no price{bills}: write what a box costs, in USD an hour, as overrides: {{{name}: "
        assert said in str(caught.value)
    assert plan(tmp_path, "autodl").price_per_hour == 0.5


def test_a_site_is_set_up_from_the_profile_alone(tmp_path: Path) -> None:
    found = plan(tmp_path, "autodl")
    site = found.site
    assert site is not None
    assert site.python == "/root/miniconda3/bin/python"
    assert site.places == {"scratch": "/root/autodl-tmp", "data": "/root/autodl-tmp", "durable": "/root/autodl-fs"}
    network = found.job.network
    assert network is not None
    assert network.env == {
        "HF_ENDPOINT": "https://hf-mirror.com",
        "HF_HUB_DISABLE_XET": "1",
        "MODELSCOPE_DOMAIN": "www.modelscope.cn",
        "HF_HOME": "/root/autodl-tmp/huggingface_cache",
    }
    assert network.tensorboard == "/root/tf-logs"
    assert network.proxy_on == "source /etc/network_turbo 2>/dev/null || true"
    assert network.proxy_off == "unset http_proxy https_proxy"
    write(tmp_path, GOOD.replace("    max_price: 2.10\n", ""))
    assert resolve(StackConfig.load(tmp_path, "x"), {"local": load_profile("local")}).site is None


def test_the_users_and_mirrors_of_each() -> None:
    users = {
        "autodl": "root",
        "featurize": None,
        "generic-ssh": None,
        "gpushare": "root",
        "lambda": "ubuntu",
        "lanrui": "user",
        "matpool": "root",
        "paperspace": "paperspace",
    }
    assert {name: load_profile(name).ssh.user for name in users} == users  # type: ignore[union-attr]
    for name in ENTERED:
        profile = load_profile(name)
        assert profile.network is not None
        assert ("huggingface" in profile.network.mirrors) == (profile.china_mirror_needed is True)


def test_autodl_s_own_overrides() -> None:
    overrides = load_profile("autodl").overrides
    assert {name: overrides[name] for name in ("PY", "HF_ENDPOINT")} == {
        "PY": "/root/miniconda3/bin/python",
        "HF_ENDPOINT": "https://hf-mirror.com",
    }


@pytest.mark.parametrize("name", ENTERED)
def test_a_first_time_user_is_told_something(name: str) -> None:
    assert load_profile(name).conveniences


def test_ssh_that_passes_no_files_is_refused_with_the_profile_s_reason(tmp_path: Path) -> None:
    ssh = load_profile("autodl").ssh
    assert ssh is not None
    proxied = ssh.flavours[0].model_copy(update={"kind": "proxied", "files": False, "why_not": "the relay is a shell"})
    alone = ssh.model_copy(update={"flavours": (proxied,)})
    said = refusal(tmp_path, "autodl", there("autodl", ssh=alone))
    assert (
        "its SSH (proxied, root@connect.<region>.seetacloud.com:<port>) passes no files: the relay is a shell" in said
    )
    both = ssh.model_copy(update={"flavours": (proxied, ssh.flavours[0])})
    assert plan(tmp_path, "autodl", there("autodl", ssh=both)).platform == "autodl"


def test_the_disk_that_counts_is_the_one_that_cells_work_on(tmp_path: Path) -> None:
    def asks(name: str, disk: str) -> str:
        write(tmp_path, text(name).replace("cpu: 1", f"cpu: 1\n        disk: {disk}"))
        return resolve(StackConfig.load(tmp_path, "x"), {name: there(name)}).platform

    assert asks("autodl", "900GB") == "autodl"  # its data disk grows; that its net disk ends at 200 GB is no matter
    with pytest.raises(ConfigError, match=r"its data tier holds 500 GB, and job.resources.disk asks for 900GB"):
        asks("lanrui", "900GB")


def test_a_net_disk_that_nobody_says_is_shared_is_one_box_s(tmp_path: Path) -> None:
    two = MOUNTS + "    # two\n"

    def both(name: str) -> Plan:
        write(tmp_path, text(name, two).replace(BOXES, "{a: {host: root@192.0.2.7}, b: {host: root@192.0.2.8}}"))
        return resolve(StackConfig.load(tmp_path, "x"), {name: there(name)})

    with pytest.raises(ConfigError, match="mounted by one box at a time"):
        both("gpushare")
    assert len(both("lambda").boxes) == 2


OTHERS = [name for name in adapters() if name != "ssh"]


@pytest.fixture
def without_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A version whose adapter `ssh` is not installed."""
    folder = tmp_path / "adapters"
    folder.mkdir()
    for name in (FOLDERS.get(other, other) for other in OTHERS):
        (folder / name).mkdir()
        (folder / name / "platform.py").touch()
    monkeypatch.setattr("sweepstack.core.extensions.ROOTS", {"sweepstack.platforms": folder})
    load_profile.cache_clear()
    yield
    load_profile.cache_clear()


@pytest.mark.usefixtures("without_ssh")
@pytest.mark.parametrize("name", ENTERED)
def test_without_its_adapter_a_candidate_is_refused_before_anything_is_rented(tmp_path: Path, name: str) -> None:
    write(tmp_path, text(name))
    with pytest.raises(ConfigError) as caught:
        resolve(StackConfig.load(tmp_path, "x"), load_profiles([name]))
    said = str(caught.value)
    assert said.startswith("stacks/Pulumi.x.yaml: no candidate fits; nothing was rented")
    assert f"{name}: its boxes are reached through the extension `ssh`, which is not installed here (sweep" in said
    there = [known for known in platforms() if load_profile(known).adapter in OTHERS]
    assert f"candidates whose adapter is: {', '.join(there)}" in said


@pytest.mark.usefixtures("without_ssh")
@pytest.mark.parametrize("name", ["autodl"])
def test_a_candidate_without_its_adapter_takes_no_other_down(tmp_path: Path, name: str) -> None:
    rented = text(name).replace(", host: root@192.0.2.7", "")
    write(tmp_path, rented.replace(f"candidates: [{name}]", f"candidates: [{name}, local]"))
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nstackConfigDir: stacks\nruntime: python\n")
    config = StackConfig.load(tmp_path, "x")
    made = resolve(config, load_profiles(config.candidates))
    assert made.platform == "local"
    assert "not installed here" in made.reasons[0]
    market = ask_market(config, name, {})
    assert (any("not installed here" in said for said in market.refusals), market.offers) == (True, {})
    assert [what for what, _ in checks(config)] == ["extras"]  # no account is asked, and nothing breaks


@pytest.mark.usefixtures("without_ssh")
@pytest.mark.parametrize("name", ["autodl"])
def test_a_stack_of_volumes_is_refused_likewise(tmp_path: Path, name: str) -> None:
    volumes = "{abl-store: {size: 100GB, region: somewhere}}"
    write(tmp_path, f"config:\n  sweepstack:store: {{platform: {name}, volumes: {volumes}, pull_to: results/keep}}\n")
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nstackConfigDir: stacks\nruntime: python\n")
    target = Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))
    looked = dict(store.checks(target))
    assert "accounts" not in looked  # nobody is asked, and nothing breaks
    (finding,) = looked["stack file"]()
    assert (finding.verdict, "not installed here" in finding.found) == ("fail", True)
    assert adapters_of(Sources(target, StackState("x"), False, None, None, "")) == set()
    config = load_any(tmp_path, "x")
    assert isinstance(config, StoreConfig)
    with pytest.raises(ConfigError, match="not installed here"):
        plan_store(config, load_profile(name))


@pytest.mark.parametrize("name", KNOWN)
def test_a_host_that_bills_is_ended_as_its_profile_says(tmp_path: Path, name: str) -> None:
    write(tmp_path, text(name))
    plan = resolve(StackConfig.load(tmp_path, "x"), load_profiles([name]))
    issue = plan.teardown.issue
    assert issue is not None
    if name == "autodl":
        assert (issue.by, issue.native, issue.command) == ("ssh", "关机", "shutdown")
    else:
        assert (issue.by, bool(issue.manual), issue.command) == ("person", True, None)


def test_a_host_of_one_s_own_needs_no_budget_and_every_box_its_own_host(tmp_path: Path) -> None:
    own = text("generic-ssh").replace("price_per_hour: 0.5", "price_per_hour: 0")
    own = own.replace("    budget: {usd: 60}\n    when_done: keep\n    lease: none\n", "")

    def made(boxes: str) -> Plan:
        write(tmp_path, own.replace(BOXES, boxes))
        return resolve(StackConfig.load(tmp_path, "x"), load_profiles(["generic-ssh"]))

    plan = made("{a: {host: ann@one}, b: {host: 'ann@two:2222/data'}}")
    assert [plan.adapter_of(box) for box in plan.boxes] == ["ssh:ann@one:22", "ssh:ann@two:2222/data"]
    assert plan.teardown.issue is None, "nothing is left for a person to do"
    for boxes, said in {
        "{a: {host: ann@one}, b: {}}": "boxes.b.host is missing",
        "{a: {host: ann@one}, b: {host: 'ann@one:22/other'}}": r"a and b are on the same host \(ann@one:22\)",
    }.items():
        with pytest.raises(ConfigError, match=said):
            made(boxes)


def test_a_platform_that_makes_its_boxes_has_no_use_for_a_host(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("want: running", "want: running, host: root@192.0.2.7"))
    with pytest.raises(
        ConfigError, match=r"local: boxes\.box-0\.host is a host of your own, and local makes its boxes"
    ):
        resolve(StackConfig.load(tmp_path, "x"), load_profiles(["local"]))


def test_only_a_box_whose_own_stop_is_proved_is_told_to_end_its_bill(tmp_path: Path) -> None:
    """`when_done: stop`: on AutoDL by the box itself; elsewhere refused with what works, and never asked of a box."""
    asked = plan(tmp_path, "autodl", when_done="stop")
    off = {"native": "关机", "command": "shutdown"}
    assert job_input(asked.job, asked.boxes[0], "sha256:0")["when_drained"] == off
    kept = plan(tmp_path, "autodl", when_done="keep")
    assert "when_drained" not in job_input(kept.job, kept.boxes[0], "sha256:0")
    said = refusal(tmp_path, "lambda", when_done="stop")
    assert "when_done: stop can't be kept there: Lambda has no stop" in said
    assert "billed on" in said
    assert "terminate it in the console" in said
