"""`sweepctl init`: names that the engine takes, and no example where a job is that was not asked about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweepstack.cli import extension, launcher
from sweepstack.cli.commands import init
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.version import VERSION
from sweepstack.onbox.common.errors import No, Unsure


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user who has the package. No terminal."""
    monkeypatch.setattr(init, "installed", lambda: True)
    monkeypatch.setattr(launcher, "install", lambda: None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    (tmp_path / "my lab").mkdir()
    monkeypatch.chdir(tmp_path / "my lab")
    return tmp_path / "my lab"


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=120))
@example("Étude 研究 x")
@example("-._")
@example("2026")
@example("Null")
@example("1e3")
def test_n8_the_name_of_any_folder_is_a_name_that_the_engine_takes(folder: str) -> None:
    name = init.project_name(folder)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,99}", name)
    assert yaml.safe_load(f"name: {name}") == {"name": name}


def test_without_the_extension_from_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "part_of", lambda *names: None)
    with pytest.raises(Unsure, match="belongs to the extension `importers`, which is not installed here"):
        init.command("it", sources=["train.py"])


def test_what_is_a_name_already_stays() -> None:
    assert [init.project_name(name) for name in ("my lab", "Étude 研究 x", "7b", "")] == [
        "my-lab",
        "Etude-x",
        "sweeps-7b",
        "sweeps",
    ]


def test_an_empty_folder_gets_the_example(root: Path) -> None:
    (root / ".git").mkdir()
    assert init.command() == 0
    assert (root / "examples" / "digits" / "train.py").is_file()
    assert (root / ".gitignore").read_text() == ".venv/\n__pycache__/\nresults/\nreport-*.html\n"


def test_a_folder_with_files_is_asked_about(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "train.py").write_text("x")
    (root / ".gitignore").write_text("*.bin\n__pycache__/")
    with pytest.raises(No, match=r"this folder has files \(train.py\).* Nothing was written") as refused:
        init.command()
    assert [line.split("  ")[0] for line in refused.value.next] == [
        "sweepctl init --no-example",
        "sweepctl init --example",
    ]
    assert sorted(path.name for path in root.iterdir()) == [".gitignore", "train.py"]
    assert init.command(example=False) == 0
    assert not (root / "examples").exists()
    assert (root / ".gitignore").read_text() == "*.bin\n__pycache__/\n.venv/\nresults/\nreport-*.html\n"


BEGINNINGS = {"example": {"examples", "Pulumi.yaml"}, "own": {"Pulumi.yaml"}, "existing": set()}


@pytest.mark.parametrize("said", [*BEGINNINGS, "yes", ""])
def test_it_asks_what_to_begin_with(
    root: Path, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "train.py").write_text("x")
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(init, "answer", lambda question: asked.append(question) or said)
    if said not in BEGINNINGS:
        with pytest.raises(No, match=r"is none of example, own, existing\. Nothing was written"):
            init.command()
    else:
        assert init.command() == 0
    written = {path.name for path in root.iterdir()} & {"examples", "Pulumi.yaml"}
    assert written == BEGINNINGS.get(said, set())
    assert "train.py" in asked[0]
    assert ("git clone URL" in capsys.readouterr().out) is (said == "existing")


def test_a_requirement_that_is_there_stays_as_it_is(root: Path) -> None:
    (root / "requirements.txt").write_text("numpy\nsweepstack[runpod] >= 0.1")
    assert init.command(example=False) == 0
    assert (root / "requirements.txt").read_text() == "numpy\nsweepstack[runpod] >= 0.1"
    (root / "Pulumi.yaml").unlink()
    (root / "__main__.py").unlink()
    (root / "stacks" / "Pulumi.sweep-a.yaml").unlink()
    (root / "requirements.txt").write_text("sweepstack-other")
    assert init.command(example=True) == 0
    assert (root / "requirements.txt").read_text() == f"sweepstack-other\nsweepstack[examples]=={VERSION}\n"


def test_a_clone_stays_as_it_is_and_is_told_its_stacks(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init.command() == 0
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert init.command() == 0
    assert "stays as it is" in (said := capsys.readouterr().out)
    assert "pulumi stack select --create sweep-a" in said
    (root / "stacks" / "Pulumi.b.yaml").write_text("config: {}\n")
    assert init.command() == 0
    assert "pulumi stack select --create NAME    (its stacks: b, sweep-a)" in capsys.readouterr().out
    assert before.items() <= {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}.items()


def test_the_stack_file_of_a_job_of_ones_own_has_nothing_of_the_example(root: Path) -> None:
    (root / "train.py").write_text("x")
    assert init.command(example=False) == 0
    text = (root / "stacks" / "Pulumi.sweep-a.yaml").read_text()
    assert not [word for word in ("digits", "epochs", "w1", "test_accuracy") if word in text]
    config = StackConfig.load(root, "sweep-a")
    assert (config.job.workdir, config.job.run) == (".", "python train.py --lr {lr} --seed {seed} --out {out}")
    assert sorted(config.artifacts) == ["best.pt", "metrics.json"]


def test_the_example_may_be_asked_for_beside_files(root: Path) -> None:
    (root / "train.py").write_text("x")
    assert init.command(example=True) == 0
    assert (root / "examples" / "digits" / "train.py").is_file()


@pytest.mark.parametrize("prefix", ["/home/x/Étude: 研究 #1/.venv", "/opt/venv"])
def test_a_virtual_environment_anywhere_is_written_as_yaml_reads_it(
    root: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", prefix)
    assert init.command() == 0
    options = yaml.safe_load((root / "Pulumi.yaml").read_text())["runtime"]["options"]
    assert options["virtualenv"] == prefix
