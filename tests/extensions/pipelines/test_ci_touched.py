"""Which stacks `sweepctl ci review` takes for touched, and what it says of one whose file is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.cli.output import NO, UNSURE, YES
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.changes import Touched, last_commit, touched
from sweepstack.extensions.pipelines.commands.ci.review import _of as review_of
from tests.extensions.pipelines.ci_jobs import commit, git


@pytest.mark.parametrize("name", ['a"b.py', "a\tb.py", "a\\b.py", "a\nb.py", "ä.py"])
def test_code_whose_name_git_would_quote_touches_its_stack(project: Path, name: str) -> None:
    base = git(project, "rev-parse", "HEAD")
    (project / "job" / name).write_text("2\n")
    commit(project, "code of a")
    assert [one.stack for one in touched(project, base)] == ["a"]


@pytest.mark.parametrize(
    ("path", "stacks"),
    [
        *[(path, ["a", "b"]) for path in (
            "__main__.py", "parts/more.py", "Pulumi.yaml", "policy.yaml", "Policy.yml", "allowed_signers",
            "requirements.txt", "requirements-gpu.txt", "pyproject.toml", "uv.lock", "profiles/runpod.md",
            ".pulumi-version", ".github/workflows/sweeps-up.yml", ".gitlab/sweeps.yml", ".gitlab-ci.yml",
        )],
        ("job/more.py", ["a"]),
        ("job/requirements.txt", ["a"]),
        ("README.md", []),
        ("notes/policy.yaml", []),
        (".github/ISSUE_TEMPLATE/a.yml", []),
    ],
)  # fmt: skip
def test_what_all_stacks_share_touches_each(project: Path, path: str, stacks: list[str]) -> None:
    base = git(project, "rev-parse", "HEAD")
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    with (project / path).open("a") as file:
        file.write("\n# more\n")
    made = commit(project, path)
    found = touched(project, base)
    assert [(one.stack, one.shared) for one in found] == [(one, len(stacks) == 2) for one in stacks]
    assert {last_commit(project, base, one.paths) for one in found} <= {made}, "whose review counts"


def test_the_program_may_lie_elsewhere_and_a_job_beside_it(project: Path) -> None:
    (project / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: stacks\nmain: ../project/prog/\n")
    for name in ("prog/__main__.py", "tools/x.py"):
        (project / name).parent.mkdir()
        (project / name).write_text("1\n")
    file = project / "stacks/Pulumi.a.yaml"
    base = commit(project, "program")
    for name, workdir, stacks in (
        ("tools/x.py", "job", []),
        ("prog/__main__.py", "job", ["a", "b"]),
        ("prog/__main__.py", ".", ["a", "b"]),  # the job ships the program, too
    ):
        file.write_text(f"config:\n  sweepstack:sweep:\n    job: {{workdir: {workdir}}}\n")
        base = commit(project, "workdir")
        (project / name).write_text(f"{workdir}\n# 2\n")
        commit(project, "code")
        assert [one.stack for one in touched(project, base)] == stacks


def test_the_file_of_another_stack_is_no_code_of_a_job_in_the_projects_folder(project: Path) -> None:
    for stack in ("a", "b"):
        file = project / f"stacks/Pulumi.{stack}.yaml"
        file.write_text("config:\n  sweepstack:sweep:\n    job: {workdir: .}\n")
    base = commit(project, "workdir")
    (project / "stacks/Pulumi.a.yaml").write_text("config:\n  sweepstack:sweep:\n    job: {workdir: ., run: x}\n")
    of_a = commit(project, "a alone")
    file.write_text("config:\n  sweepstack:sweep:\n    job: {workdir: ., run: y}\n")
    assert [one.stack for one in touched(project, base, of_a)] == ["a"]
    of_b = commit(project, "b alone")
    assert [one.stack for one in touched(project, of_a)] == ["b"]
    found = {one.stack: last_commit(project, base, one.paths) for one in touched(project, base)}
    assert found == {"a": of_a, "b": of_b}, "whose review counts"
    (project / "README.md").write_text("shipped with both jobs\n")
    commit(project, "more")
    assert [one.stack for one in touched(project, of_b)] == ["a", "b"]


@pytest.mark.parametrize(
    ("stack", "listed", "code", "asked"),
    [
        ("a", '[{"name": "a"}]', YES, ["review of a"]),
        ("new", '[{"name": "a"}]', YES, ["init new", "review of new elsewhere"]),
        ("--json", "[]", NO, []),
        ("UPPER", "[]", NO, []),
        ("UPPER", '[{"name": "UPPER"}]', YES, ["review of UPPER"]),  # it is there since before the rule
        ("a", "no list", UNSURE, []),
    ],
)
def test_a_review_makes_no_stack_in_the_backend(
    project: Path, monkeypatch: pytest.MonkeyPatch, stack: str, listed: str, code: int, asked: list[str]
) -> None:
    seen, team = [], {steps.BACKEND: "s3://team"}

    def pulumi(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        if words[1] == "ls":
            return steps.Done(YES, listed)
        assert env[steps.BACKEND].startswith("file:///"), "nothing is made in the team's"
        seen.append(f"{words[1]} {words[3]}")
        return steps.Done(YES)

    def sweepctl(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        assert "--request" in words
        seen.append(f"review of {words[2]}" + (" elsewhere" if env != team else ""))
        Path(next(word for word in words if word.endswith(".json"))).write_text('{"digest": "sha256:x"}')
        return steps.Done(YES)

    monkeypatch.setattr(steps, "pulumi", pulumi)
    monkeypatch.setattr(steps, "sweepctl", sweepctl)
    one = Touched(stack, ())
    assert review_of(project, team, project, "HEAD", one, steps.listed(project, team)).code == code
    assert seen == asked


@pytest.mark.parametrize(
    ("exported", "listed", "project_file", "code"),
    [
        (0, (0, "[]"), "", NO),
        (255, (0, '[{"name": "b"}]'), "", UNSURE),
        (255, (0, '[{"name": "organization/p/b"}]'), "", UNSURE),
        (255, (255, "[]"), "", UNSURE),
        (255, (0, ""), "", UNSURE),
        (255, (0, '[{"name": "a"}]'), "\n# another project", UNSURE),
        (255, (0, '[{"name": "a"}]'), "", YES),
    ],
)
def test_a_removed_stack_file_is_fine_where_the_backend_says_it_has_none(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    exported: int,
    listed: tuple[int, str],
    project_file: str,
    code: int,
) -> None:
    def pulumi(root: Path, env: dict[str, str], *words: str, captured: bool = False) -> steps.Done:
        return steps.Done(*listed) if words[1] == "ls" else steps.Done(exported)

    monkeypatch.setattr(steps, "pulumi", pulumi)
    base = git(project, "rev-parse", "HEAD")
    (project / "stacks/Pulumi.b.yaml").unlink()
    with (project / "Pulumi.yaml").open("a") as file:
        file.write(project_file)
    commit(project, "b goes")
    (removed,) = [one for one in touched(project, base) if one.removed]
    assert review_of(project, {}, project, base, removed, steps.listed(project, {})).code == code
