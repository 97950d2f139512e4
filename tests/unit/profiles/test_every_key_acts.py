"""Each key of a profile has an effect: another value of it changes a plan, a queue's input, a refusal or what is told.

The keys are taken from the model, so one that is added later and that no code reads turns this red.
"""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from components.box import job_input
from sweepstack.config.file import parse_document
from sweepstack.config.stack_config import StackConfig, StoreConfig, load_any
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles import dated_facts, dates
from sweepstack.profiles.load import FOLDER, load_profile, platforms
from sweepstack.profiles.model import Profile
from sweepstack.profiles.resolve import resolve
from sweepstack.profiles.volume_stack_plan import plan_store
from tests.unit.config.helpers import GOOD, write

LOADED = {"sections", "gotchas", "unavailable"}
"""Fields that the loader fills in: they are no keys."""
REPEATED = {"Profile.meter_stop_irreversible", "Profile.overrides", "VerbFacts.irreversible"}
"""Keys that say again, for people, what others say: one that contradicts these is refused when the profile is read."""
PROSE = {"Profile.conveniences"}
"""Keys that are only told: docs/reference/platforms.md has them."""
IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        3,
        0.5,
        "7 s",
        "7 d",
        "12.1",
        "2025-01",
        "2026-10",
        "never",
        "other",
        "OTHER",
        "/other",
        "~/other",
    ),
    *("user@other", [], ["other"], ["torch"], {}, {"other": "other"}, {"OTHER": "/other"}, {"OTHER": "other"}),
    *({"pip": {"OTHER": "other"}}, {"other": "unverified"}, {"2026-06": "other"}),
)
"""What a key is set to, besides other choices and parts of its value. What it can't be is passed over."""
Path_ = tuple[str | int, ...]


def kept(raw: dict[str, Any]) -> None:
    """AutoDL's data disk outlives a release."""
    raw["tiers"]["data"]["survives"]["destroy"] = True
    raw["verbs"]["destroy"]["kills"].remove("data")
    raw["verbs"]["destroy"]["keeps"].append("data")


def by_a_person(raw: dict[str, Any]) -> None:
    """No command ends AutoDL's bill."""
    raw["verbs"]["stop"] |= {"issued_by": "person", "manual": "in the console"}
    del raw["verbs"]["stop"]["command"]
    raw |= {"stop_from_inside": "refuted", "stop_refused": "it bills on"}


def ended(raw: dict[str, Any]) -> None:
    """A delete releases AutoDL's box."""
    raw |= {"meter_stop_verb": "destroy", "meter_stop_irreversible": True}


def another_proxy(raw: dict[str, Any]) -> None:
    raw["network"]["proxy"]["hook"] = raw["overrides"]["PROXY_HOOK"] = "export https_proxy=http://other"


def relayed(raw: dict[str, Any]) -> None:
    """No way in passes files."""
    raw["ssh"]["flavours"][0] |= {"files": False, "why_not": "it is a relay"}


TOGETHER = {
    kept: {"VerbFacts.kills", "VerbFacts.keeps", "Tier.survives"},
    by_a_person: {"VerbFacts.issued_by", "Profile.stop_from_inside"},
    ended: {"Profile.meter_stop_verb"},
    another_proxy: {"Proxy.hook"},
    relayed: {"SshFlavour.files"},
}
"""Keys of AutoDL that change only with others that say the same."""


class NoValue(Exception):
    """The model does not take this value."""


def configs(root: Path, name: str) -> Iterator[StackConfig | StoreConfig]:
    """Sweeps of many kinds there, and a stack of volumes."""
    profile = load_profile(name)
    own = "host: root@192.0.2.7" if profile.ssh is not None else "returns: ~/r" if profile.by_hand is not None else ""
    price = f"overrides: {{{name}: {{price_per_hour: 0.5}}}}"
    second = own.replace(".7", ".8")
    base = (
        GOOD.replace("[local]", f"[{name}]")
        .replace("overrides: {local: {price_per_hour: 0.12}}", price)
        .replace("{want: running}", f"{{want: running, {own}}}")
        .replace("    boxes:", "    budget: {usd: 60}\n    when_done: keep\n    lease: 2h\n    boxes:")
    )
    gpu = 'gpu: {name: [A100, H100], count: 1, memory: 40GB+, cuda: "12.4+"}'
    changes = {
        "plain": ("", ""),
        "spot": ("cpu: 1", "cpu: 1\n        spot: true"),
        "mounts": ("    boxes:", "    mounts: {/ckpt: {source: abl-store}}\n    boxes:"),
        "two": ("{box-0:", f"{{box-1: {{want: running, {second}}}, box-0:"),
        "two on a volume": (
            "    boxes: {box-0:",
            f"    mounts: {{/ckpt: {{source: s}}}}\n    boxes: {{box-1: {{want: running, {second}}}, box-0:",
        ),
        "stopped": ("want: running", "want: stopped"),
        "stops": ("when_done: keep", "when_done: stop"),
        "image": (gpu, f"gpu: {{count: 1}}\n      image: {IMAGE}"),
        "no price": (f"    {price}\n", ""),
        "no budget": ("    budget: {usd: 60}\n", ""),
        "far": ("root@192.0.2.7", "far"),
        "no host": (own or "none", ""),
        "big": ("cpu: 1", "cpu: 1\n        disk: 900GB"),
        "proxy": ("price_per_hour: 0.5", "price_per_hour: 0.5, network: {proxy: true}"),
    }
    for index, (old, new) in enumerate(changes.values()):
        if old in base:
            write(root, base.replace(old, new, 1), f"s{index}")
            yield StackConfig.load(root, f"s{index}")
    write(root, f"config:\n  sweepstack:store:\n    platform: {name}\n    volumes: {{a: {{size: 10GB}}}}\n", "store")
    try:
        found = load_any(root, "store")
    except ConfigError:
        return
    assert isinstance(found, StoreConfig)
    yield found


class World:
    """One platform: what can be seen of its profile."""

    def __init__(self, root: Path, name: str) -> None:
        root.mkdir()
        self.name, self.configs = name, list(configs(root, name))
        head = (FOLDER / f"{name}.md").read_text("utf-8").split("---\n", 2)[1]
        self.raw: dict[str, Any] = parse_document(head, name, first_line=2).data
        self.plain = self.seen(self.raw)

    def relayed(self) -> World:
        """The same where no way in passes files."""
        other = copy.copy(self)
        other.raw = copy.deepcopy(self.raw)
        relayed(other.raw)
        other.plain = other.seen(other.raw)
        return other

    def seen(self, raw: dict[str, Any], *, repeated: bool = False) -> tuple[str, ...]:
        """All that a profile leads to. `repeated`: a contradiction between its keys is an effect, too."""
        try:
            profile = Profile.model_validate({**raw, "sections": (), "gotchas": ()})
        except ValidationError as error:
            if repeated and all(one["type"] == "value_error" for one in error.errors()):
                return (str(error),)
            raise NoValue from error
        said = [str(dated_facts.facts_of(profile, dates.today()))]
        for config in self.configs:
            try:
                if isinstance(config, StoreConfig):
                    said.append(repr(plan_store(config, profile)))
                    continue
                plan = resolve(config, {self.name: profile})
                box = plan.boxes[0]
                job = job_input(plan.job, box, "")
                said += [repr(plan), repr(job), plan.adapter_of(box), repr(plan.lease_words)]
            except ConfigError as error:
                said.append(str(error))
        return tuple(said)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    folder = tmp_path_factory.mktemp("worlds")
    found = [World(folder / name, name) for name in platforms()]
    return [*found, next(world for world in found if world.name == "autodl").relayed()]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def keys_of(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """Every key of the model and of those below it, with its type: `Tier.inode_cap`."""
    for name, field in model.model_fields.items():
        if model is Profile and name in LOADED:
            continue
        below = models_in(field.annotation)
        if not below:
            yield f"{model.__name__}.{name}", field.annotation
        for one in below:
            yield from keys_of(one)


KEYS = dict(keys_of(Profile))


def places_of(key: str, model: type[BaseModel], raw: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Where in a profile a key stands, or could."""
    for name, field in model.model_fields.items():
        if f"{model.__name__}.{name}" == key:
            yield (*at, name)
        value = raw.get(name)
        for below in models_in(field.annotation):
            if isinstance(value, list):
                for index, one in enumerate(value):
                    yield from places_of(key, below, one, (*at, name, index))
            elif isinstance(value, dict) and typing.get_origin(field.annotation) is dict:
                for inner, one in value.items():
                    yield from places_of(key, below, one, (*at, name, inner))
            elif isinstance(value, dict):
                yield from places_of(key, below, value, (*at, name))


def part_of(raw: Any, at: Path_) -> Any:
    """What stands there; None where the key is left out."""
    for part in at:
        raw = raw.get(part) if isinstance(raw, dict) else raw[part]
    return raw


def others(annotation: Any, value: Any) -> Iterator[Any]:
    """Other values of a key: each choice, parts of it, and what any key might be."""
    choices = [annotation, *typing.get_args(annotation)]
    yield from (
        choice for one in choices if typing.get_origin(one) is typing.Literal for choice in typing.get_args(one)
    )
    if isinstance(value, list) and value:
        yield value[1:]
    if isinstance(value, dict):
        yield from ({**value, **more} for more in VALUES if isinstance(more, dict) and more)
        for name, inner in value.items():
            yield {key: one for key, one in value.items() if key != name}
            yield from ({**value, name: one} for one in (not inner, f"{inner}x", "unverified", "other"))
    if isinstance(value, str):
        yield from (f"{value}x", f"{value} x")
    yield from VALUES


def changed(raw: dict[str, Any], at: Path_, value: Any) -> dict[str, Any]:
    """A copy with another value there. A key of the top level that has one is not unknown any more."""
    copied = copy.deepcopy(raw)
    part_of(copied, at[:-1])[at[-1]] = value
    if len(at) == 1 and value is not None and at[0] != "unknown":
        copied["unknown"] = [name for name in copied.get("unknown", ()) if name != at[0]]
    return copied


def acts(worlds: list[World], key: str, annotation: Any) -> bool:
    for world in worlds:
        for at in places_of(key, Profile, world.raw):
            now = part_of(world.raw, at)
            for value in others(annotation, now):
                if type(value) is type(now) and value == now:
                    continue
                try:
                    if world.seen(changed(world.raw, at, value), repeated=key in REPEATED) != world.plain:
                        return True
                except NoValue:
                    continue
    return False


@pytest.mark.parametrize("key", sorted(set(KEYS).difference(PROSE, *TOGETHER.values())))
def test_another_value_of_a_key_has_an_effect(worlds: list[World], key: str) -> None:
    assert acts(worlds, key, KEYS[key]), f"{key}: no code reads it; let it act, or take it out of model and profiles"


@pytest.mark.parametrize("moves", ["never", "create", "start", None])
def test_whether_an_address_moves_goes_into_the_state(tmp_path: Path, moves: str | None) -> None:
    """By it a command knows whether to look an address up again: also of a host by a name, of which no note tells."""
    world = World(tmp_path / "autodl", "autodl")
    profile = Profile.model_validate({**changed(world.raw, ("ssh", "moves"), moves), "sections": (), "gotchas": ()})
    far = next(one for one in world.configs if isinstance(one, StackConfig) and one.boxes["box-0"].host == "far")
    assert resolve(far, {"autodl": profile}).teardown.as_inputs().get("moves") == moves


@pytest.mark.parametrize("change", TOGETHER, ids=lambda change: change.__name__)
def test_keys_that_say_the_same_have_an_effect_together(worlds: list[World], change: Callable[[Any], None]) -> None:
    world = next(world for world in worlds if world.name == ("gpushare" if change is another_proxy else "autodl"))
    raw = copy.deepcopy(world.raw)
    change(raw)
    assert world.seen(raw) != world.plain
    assert set(KEYS) >= TOGETHER[change]


def test_what_is_only_told_is_told() -> None:
    page = (FOLDER.parent / "docs" / "reference" / "platforms.md").read_text("utf-8")
    assert set(KEYS) >= PROSE | REPEATED
    assert all(line in page for name in platforms() for line in load_profile(name).conveniences)


def test_a_key_that_no_code_reads_is_found(worlds: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    """`billed_by` without the note that it leads to."""
    monkeypatch.setattr("sweepstack.profiles.notes._billing", lambda *_: [])
    plain = [world.plain for world in worlds]
    for world in worlds:
        world.plain = world.seen(world.raw)
    try:
        assert not acts(worlds, "Meter.billed_by", KEYS["Meter.billed_by"])
    finally:
        for world, before in zip(worlds, plain, strict=True):
            world.plain = before
