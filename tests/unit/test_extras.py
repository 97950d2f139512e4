"""What only some sweeps need: where it is not installed, one refusal with the command, and nothing else stops."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from scripts.lib import extras as setup_extras
from scripts.lib.errors import SetupError
from scripts.lib.stamp import PROOF
from sweepstack.core import extras
from sweepstack.core.extras import MODULES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADAPTERS = {file.parent.name for file in ROOT.glob("sweepstack/*/*/platform.py")}
EXTRAS = MODULES | {name: name for name in ADAPTERS if extras.of_platform(name)}
WITHOUT = """
import sys
for name in ("bokeh", "boto3", "botocore", "cryptography", "pyarrow", "runpod", "vastai", "vastai_sdk"):
    sys.modules[name] = None
import os, tempfile
from pathlib import Path
from types import SimpleNamespace
import components.from_config
import sweepstack.operations.strays.accounts as audit
import sweepstack.provider.__main__
from sweepstack.platforms.common.s3_client import asking
from sweepstack.cli.commands.doctor.platforms import extras
from sweepstack.config.extras import refuse_missing
from sweepstack.config.stack_config import StackConfig, StoreConfig
from sweepstack.evidence.statement import load_key
from sweepstack.loaders.parquet_file import ParquetFile
from sweepstack.platforms.registry import load_platform

root = Path(tempfile.mkdtemp())
(root / "stacks").mkdir()

def stack(name, text):
    (root / "stacks" / f"Pulumi.{name}.yaml").write_text(text)
    return (StoreConfig if "store:" in text else StackConfig).load(root, name)

def said(what):
    try:
        print(what() or "yes")
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\\n", " / "))

def s3():
    with asking("s3://lab/x"):
        pass

vast = Path("stacks/Pulumi.sweep-vast.yaml").read_text()
plain = Path("stacks/Pulumi.sweep-a.yaml").read_text()
STORE = "config:\\n  sweepstack:store: {platform: vastai, volumes: {data: {size: 10GB, region: x}}, pull_to: s3://lab/v}\\n"
said(lambda: refuse_missing(stack("plain", plain)))
said(lambda: refuse_missing(stack("vast", vast.replace("pull_to: ", "pull_to: s3://lab/sweep  # "))))
said(lambda: refuse_missing(stack("store", STORE)))
said(lambda: [vars(one) for one in extras(stack("vast", vast))])
said(s3)
said(lambda: load_key(b"", "key"))
said(lambda: ParquetFile(None))
for key in ("", "a-key"):
    os.environ["VAST_API_KEY"] = key
    said(lambda: load_platform("vastai").account())
    known = SimpleNamespace(problems=[], speaks_of=lambda adapter: False)
    said(lambda: (audit.ask(["vastai"], known), known.problems)[1])
"""


def test_the_extras_are_those_of_the_package() -> None:
    declared = PROJECT["optional-dependencies"]
    assert set(EXTRAS) == set(declared) - {"examples"} == set(setup_extras.declared(ROOT))
    assert set(setup_extras.ASKED_FOR) <= set(EXTRAS)
    assert {f"[{extra}]" for extra in EXTRAS} <= set(PROOF)
    of_module = packages_distributions()
    for extra, module in EXTRAS.items():
        if extra in setup_extras.HEAVY and module not in of_module:
            continue
        named = {re.split(r"[<>=,]", needed)[0].removesuffix("-sdk") for needed in declared[extra]}
        assert named & set(of_module[module]), extra


def test_without_the_extras_one_refusal_names_file_key_and_command(tmp_path: Path) -> None:
    """In a process that has none of them: a sweep without such a thing is fine, all else is refused in one line."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr
    plain, vast, store, doctor, s3, sign, parquet, keyless, unasked, keyed, asked = ended.stdout.splitlines()
    lacks = {extra: f"the package {EXTRAS[extra]} is not installed here. Next: {extras.fix(extra)}" for extra in EXTRAS}
    assert plain == "yes"
    file = "ConfigError: stacks/Pulumi.vast.yaml: "
    assert vast == f"{file}candidates[0] (vastai): {lacks['vastai']} / {file[13:]}pull_to: {lacks['s3']}"
    assert store.startswith("ConfigError: stacks/Pulumi.store.yaml: platform (vastai): ")
    assert "'verdict': 'fail'" in doctor
    assert "'fix': 'scripts/setup --extra vastai'" in doctor
    assert s3 == f"EvidenceError: object storage can't be asked: {lacks['s3']}"
    assert sign == f"NotAKey: nothing can be signed: {lacks['sign']}"
    assert parquet == f"NoAnswer: can't be read here: {lacks['parquet']}"
    assert keyless.startswith("NotAuthorized: there is no key for vast.ai: ")
    assert unasked == "yes"  # as where there is no key: an audit has nothing to ask
    assert keyed == f"NotInstalled: vast.ai can't be asked: {lacks['vastai']}"
    assert asked == f'["vastai could not be asked: vast.ai can\'t be asked: {lacks["vastai"]}"]'


def test_an_installed_package_names_the_pip_of_its_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "installed", lambda: True)
    monkeypatch.setattr("sys.executable", "/home/ann/my lab/.venv/bin/python")
    assert extras.fix("vastai") == "'/home/ann/my lab/.venv/bin/python' -m pip install 'sweepstack[vastai]'"


def test_set_up_installs_what_the_stack_files_ask_for(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    one, other = tmp_path / "stacks" / "Pulumi.a.yaml", tmp_path / "stacks" / "Pulumi.b.yaml"
    search = tmp_path / "stacks" / "search"
    search.write_text("search: {sampler: tpe}\n")
    one.write_text("candidates: [local]   # or vastai, and pull_to: s3://lab\nfinite: report\n")
    other.write_text("candidates: [runpod, vastai, kubernetes]\npull_to: s3://lab/b\nmodel.parquet: {load: parquet}\n")
    ask = setup_extras.wanted
    assert ask(tmp_path, [one], [], every=False) == []
    assert ask(tmp_path, [search], [], every=False) == ["[search]"]
    assert ask(tmp_path, [one], ["sign"], every=False) == ["[sign]"]
    assert ask(tmp_path, None, [], every=False) == ["[kubernetes]", "[parquet]", "[runpod]", "[s3]", "[vastai]"]
    assert ask(tmp_path, [one], [], every=True) == [f"[{extra}]" for extra in sorted(set(EXTRAS) - {"orbax"})]
    one.write_text("model.keras: {load: keras}\nck/: {load: orbax}\nrun/: {load: hf}\nm.onnx: {load: 'onnx'}\n")
    assert ask(tmp_path, [one], [], every=False) == ["[hdf5]", "[onnx]", "[orbax]"]
    with pytest.raises(
        SetupError,
        match="there is no extra torch; there are: flax, gguf, hdf5, image, kubernetes, onnx, orbax, pandas, parquet",
    ):
        ask(tmp_path, None, ["torch"], every=False)
    with pytest.raises(SetupError, match=r"Pulumi\.gone\.yaml can't be read"):
        ask(tmp_path, [tmp_path / "Pulumi.gone.yaml"], [], every=False)
