"""A project whose folder is the job's: what it has for its sweeps is no code of the job."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.config.own_files import own_files
from sweepstack.core.workdir import Shipment, collect

MARKER = '{"schema": 1, "identity": "abc", "project": "p", "stack": "mini", "created_at": "2026-01-01T00:00:00Z"}'
SWEEP = "config:\n  sweepstack:sweep:\n    pull_to: results/{}\n"
FILES = {
    "Pulumi.yaml": "name: flat\nruntime: python\nmain: program\nstackConfigDir: stacks\n",
    "program/__main__.py": "import pulumi\n",
    "policy.yaml": "approvals: 1\n",
    "allowed_signers": "ana ssh-ed25519 AAAA\n",
    "stacks/Pulumi.mini.yaml": SWEEP.format("mini"),
    "stacks/Pulumi.mini.yaml.orig": "",
    "stacks/Pulumi.other.yaml": SWEEP.format("other"),
    "results/mini/cells/a/best.pt": "weights",
    "results/removed/cells/a/best.pt": "weights",
}
JOB = ("configs/small.yaml", "program/model.py", "results/notes.txt", "stacks/README.md", "train.py")
OWN = [*sorted(set(FILES) - {"Pulumi.yaml"}), "stacks/Pulumi.new.yaml", "results/other/first", "results/removed/new/x"]


@pytest.fixture(params=["git", "no git"], scope="module")
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flat")
    marked = {f"results/{name}/sweep.json": MARKER for name in ("mini", "other", "removed")}
    for name, text in {**FILES, **marked, **dict.fromkeys(JOB, "x")}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if request.param == "git":
        for words in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", *words], cwd=root, check=True)
    return root


def ships(root: Path, *include: str) -> Shipment:
    return collect(root, include, own_files(root))


def test_the_jobs_files_ship_and_nothing_else(project: Path) -> None:
    shipment = ships(project)
    assert tuple(file.path for file in shipment.files) == JOB
    assert shipment.left_behind == ()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.dictionaries(st.sampled_from(OWN), st.none() | st.binary(max_size=9), min_size=1), said=st.text("ab c"))
def test_whatever_is_edited_among_these_files_the_code_stays(
    project: Path, edits: dict[str, bytes | None], said: str
) -> None:
    before = ships(project).digest
    (project / "Pulumi.yaml").write_text(f"{FILES['Pulumi.yaml']}description: x{said}\n")
    for name, data in edits.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).unlink(missing_ok=True)
        if data is not None:
            (project / name).write_bytes(data)
    assert ships(project).digest == before


@pytest.mark.parametrize("name", JOB)
def test_a_file_of_the_job_is_code(project: Path, name: str) -> None:
    before = ships(project).digest
    (project / name).write_text("y")
    assert ships(project).digest != before
    (project / name).write_text("x")
    assert ships(project).digest == before


def test_what_include_itself_names_ships(project: Path) -> None:
    """A cell may begin with the weights of another sweep. A glob that only happens to match brings none of it."""
    (project / "results/mini/cells/a/best.pt").write_text("weights")
    named = ships(project, "results/mini/cells/a/best.pt", "**/*.pt")
    assert [file.path for file in named.files if file.path not in JOB] == ["results/mini/cells/a/best.pt"]


def test_a_job_above_the_project_or_beside_it(tmp_path: Path) -> None:
    """`workdir: ..` has the project below it, `workdir: job` has nothing of it."""
    for name, text in FILES.items():
        (tmp_path / "sweeps" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sweeps" / name).write_text(text)
    (tmp_path / "train.py").write_text("x")
    own = own_files(tmp_path / "sweeps")
    assert [file.path for file in collect(tmp_path, (), own).files] == [
        "sweeps/results/removed/cells/a/best.pt",
        "train.py",
    ]
    assert [file.path for file in collect(tmp_path / "sweeps/results/mini", (), own).files] == ["cells/a/best.pt"]


def test_without_a_project_all_is_code(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.a.yaml").write_text("x")
    assert [file.path for file in ships(tmp_path).files] == ["Pulumi.a.yaml"]
