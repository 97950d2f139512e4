"""Which stacks `sweepctl ci review` takes for touched, and what it says of one whose file is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.cli.commands.ci import steps
from sweepstack.cli.commands.ci.changes import touched
from sweepstack.cli.commands.ci.review import _of as review_of
from sweepstack.cli.output import NO, UNSURE, YES
from tests.unit.cli.ci_jobs import commit, git


@pytest.mark.parametrize("name", ['a"b.py', "a\tb.py", "a\\b.py", "a\nb.py", "ä.py"])
def test_code_whose_name_git_would_quote_touches_its_stack(project: Path, name: str) -> None:
    base = git(project, "rev-parse", "HEAD")
    (project / "job" / name).write_text("2\n")
    commit(project, "code of a")
    assert [one.stack for one in touched(project, base)] == ["a"]


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
    assert review_of(project, {}, project, base, removed).code == code
