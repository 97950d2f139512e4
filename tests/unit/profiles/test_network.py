"""What a person switches of a platform's network: each route alone, the proxy, the caches; and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from components.box import job_input
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.runner.environment import variables
from sweepstack.onbox.runner.records import Entry
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, write
from tests.unit.profiles.test_rentals import plan, text, there

TURBO = "export http_proxy=http://turbo.gpushare.com:30000 https_proxy=http://turbo.gpushare.com:30000"
UNSET = "unset http_proxy https_proxy"
HUB = {"HF_ENDPOINT": "https://hf-mirror.com", "HF_HUB_DISABLE_XET": "1"}
TUNA = {"PIP_INDEX_URL": "https://pypi.tuna.tsinghua.edu.cn/simple"}


def with_network(root: Path, name: str, network: str) -> Plan:
    write(root, text(name).replace("price_per_hour: 0.5", f"price_per_hour: 0.5, network: {network}"))
    return resolve(StackConfig.load(root, "x"), {name: there(name)})


def told(found: Plan) -> Any:
    """What the queue of its box is told."""
    return job_input(found.job, found.boxes[0], "sha256:" + "0" * 64).get("network")


@pytest.mark.parametrize(
    ("network", "env", "proxy"),
    [
        ("{}", {**HUB, **TUNA}, (TURBO, UNSET, False)),
        ("{proxy: true}", {**HUB, **TUNA}, (TURBO, UNSET, True)),
        ("{proxy: false}", {**HUB, **TUNA}, ("", "", False)),
        (
            "{proxy: export https_proxy=http://10.0.0.1}",
            {**HUB, **TUNA},
            ("export https_proxy=http://10.0.0.1", "", True),
        ),
        ("{mirrors: {pip: false}}", HUB, (TURBO, UNSET, False)),
        ("{mirrors: {huggingface: false}}", TUNA, (TURBO, UNSET, False)),
        (
            "{mirrors: {pip: {PIP_INDEX_URL: http://m/s}}}",
            {**HUB, "PIP_INDEX_URL": "http://m/s"},
            (TURBO, UNSET, False),
        ),
        ("{mirrors: {conda: {CONDA_URL: http://m}}}", {**HUB, **TUNA, "CONDA_URL": "http://m"}, (TURBO, UNSET, False)),
    ],
)
def test_each_is_switched_alone(
    tmp_path: Path, network: str, env: dict[str, str], proxy: tuple[str, str, bool]
) -> None:
    found = with_network(tmp_path, "gpushare", network)
    caches = dict(load_profile("gpushare").network.caches)  # type: ignore[union-attr]
    on, off, always = proxy
    expected = {"env": {**env, **caches}, "proxy_on": on, "proxy_off": off}
    assert told(found) == {key: value for key, value in expected.items() if value} | (
        {"proxy_always": True} if always else {}
    )


def test_caches_lie_where_the_person_says(tmp_path: Path) -> None:
    assert told(plan(tmp_path, "generic-ssh")) == {"env": {"HF_HOME": "~/proj/.hf"}}
    moved = with_network(tmp_path, "generic-ssh", "{caches: {HF_HOME: /data/hf, TORCH_HOME: ~/torch}}")
    assert told(moved) == {
        "env": {"HF_HOME": "/data/hf", "TORCH_HOME": "~/torch"},
        "written": ["HF_HOME", "TORCH_HOME"],
    }
    assert told(with_network(tmp_path, "generic-ssh", "{caches: {HF_HOME: false}}")) == {"written": ["HF_HOME"]}


@pytest.mark.parametrize(
    ("name", "network", "said"),
    [
        (
            "generic-ssh",
            "{proxy: true}",
            "overrides.generic-ssh.network.proxy: its profile knows none; write the shell",
        ),
        ("generic-ssh", "{mirrors: {pip: false}}", "mirrors.pip: there is none to switch off; it has none"),
        ("autodl", "{caches: {TORCH_HOME: false}}", "caches.TORCH_HOME: there is none to switch off; it has HF_HOME"),
        ("autodl", "{mirrors: {pip: {HF_ENDPOINT: http://m}}}", "HF_ENDPOINT is set by the mirrors of huggingface and"),
        ("autodl", "{mirrors: {pypi: false}}", "pypi"),
        ("autodl", "{mirrors: {pip: true}}", "expected false, or variables, such as {PIP_INDEX_URL:"),
        ("autodl", "{caches: {HF_HOME: here}}", "expected false, or a path such as /data/hf or ~/hf"),
        ("autodl", "{proxy: 7}", "expected true, false, or a shell line such as"),
    ],
)
def test_a_mistake_is_said_before_anything_is_made(tmp_path: Path, name: str, network: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_network(tmp_path, name, network)
    assert said in str(caught.value)


def rented(root: Path, name: str, network: str) -> Plan:
    """A plan on a platform whose boxes an API rents."""
    said = GOOD.replace("[local]", f"[{name}]").replace("local: {price_per_hour: 0.12}", f"{name}: {network}")
    asked = "    budget: {usd: 9}\n    when_done: keep\n    lease: none\n    overrides:"
    write(root, said.replace("    overrides:", asked))
    return resolve(StackConfig.load(root, "x"), {name: load_profile(name)})


@pytest.mark.parametrize("name", ["runpod", "vastai"])
def test_caches_of_rented_boxes_lie_below_the_box_s_folder(tmp_path: Path, name: str) -> None:
    caches = dict(load_profile(name).network.caches)  # type: ignore[union-attr]
    assert set(caches) == {"HF_HOME", "PIP_CACHE_DIR"}
    assert told(rented(tmp_path, name, "{}")) == {"folders": caches}
    moved = told(rented(tmp_path, name, "{network: {caches: {HF_HOME: /workspace/hf, PIP_CACHE_DIR: false}}}"))
    assert moved == {"env": {"HF_HOME": "/workspace/hf"}, "written": ["HF_HOME", "PIP_CACHE_DIR"]}
    behind = told(rented(tmp_path, name, "{network: {proxy: . /p, mirrors: {pip: {PIP_INDEX_URL: http://m/s}}}}"))
    assert behind == {
        "env": {"PIP_INDEX_URL": "http://m/s"},
        "folders": caches,
        "proxy_on": ". /p",
        "proxy_always": True,
    }
    with pytest.raises(ConfigError, match=f"overrides.{name}.network.proxy: its profile knows none"):
        rented(tmp_path, name, "{network: {proxy: true}}")


def test_a_box_s_processes_see_the_caches_where_the_box_is(tmp_path: Path) -> None:
    spec = {"python": sys.executable, "native_id": "b", "network": {"folders": {"HF_HOME": "data/hf"}}}
    entry = Entry("c", {}, "", "", "true", {}, "", "", "", "", 0)
    assert variables(tmp_path / box_layout.HOME, spec, entry, None)["HF_HOME"] == str(tmp_path / "data/hf")
    own = entry._replace(env={"HF_HOME": "/mine"})
    assert variables(tmp_path / box_layout.HOME, spec, own, None)["HF_HOME"] == "/mine"


def test_boxes_that_a_platform_makes_have_no_such_switches(tmp_path: Path) -> None:
    write(
        tmp_path,
        GOOD.replace("{price_per_hour: 0.12}", "{network: {proxy: false}}").replace("    max_price: 2.10\n", ""),
    )
    with pytest.raises(ConfigError, match=r"overrides.local.network: its profile states no network to change"):
        resolve(StackConfig.load(tmp_path, "x"), {"local": load_profile("local")})
