"""The night's look at drift: whether `pulumi up` of the main branch would change what is up. No engine is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.cli.output import NO, UNSURE, YES
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.commands.ci import nightly, post
from tests.simulators.forges import Forge

pytestmark = pytest.mark.parametrize("forge", ["github"], indirect=True)  # nothing here differs between the forges
UP = '[{"name": "a", "resourceCount": 7}, {"name": "b", "resourceCount": 0}]'
ROW = " ~  sweepstack:index:Box box-0 update [diff: ~image]"
PREVIEW = f"""\
Previewing update (a):

 ~  sweepstack:index:Box box-0 refreshing\x20
    sweepstack:index:Gate box-0\x20\x20
{ROW}
    pulumi:pulumi:Stack p-a running\x20
Diagnostics:
  pulumi:pulumi:Stack (p-a):
"""


@pytest.mark.parametrize(
    ("ended", "code", "words"),
    [
        (0, YES, ""),
        (steps.CHANGES, NO, "what is up differs from the files of the main branch"),
        (1, UNSURE, "could not tell"),
        (255, UNSURE, "could not tell"),
    ],
)
def test_drift_is_said_in_words_and_in_the_summary(
    forge: Forge, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int, code: int, words: str
) -> None:
    asked: list[tuple[str, ...]] = []

    def pulumi(root: Path, env: dict[str, str], *said: str, captured: bool = False) -> steps.Done:
        asked.append(said)
        if said[:2] == ("stack", "ls"):
            return steps.Done(YES, UP)
        return steps.Done(ended, PREVIEW) if said[0] == "preview" else steps.Done(YES)

    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setattr(steps, "pulumi", pulumi)
    monkeypatch.setattr(steps, "sweepctl", lambda *_, **__: steps.Done(YES, '{"bills": "nothing"}'))
    assert nightly.command(tmp_path / "n") == code
    post.command(tmp_path / "n")
    summary = (tmp_path / "summary").read_text()
    assert "| `pulumi preview --expect-no-changes --stack a` |" in summary
    assert words in summary
    assert (ROW in summary) == (code != YES)
    assert "refresh" not in summary, "rows that change nothing"
    assert "Gate" not in summary
    assert ("  pulumi:pulumi:Stack (p-a):" in summary) == (code != YES)
    assert [issue.state for issue in forge.issues] == ([] if code == YES else ["open"])
    previews = [said for said in asked if said[0] == "preview"]
    assert [said[said.index("--stack") + 1] for said in previews] == ["a"], "what is not up is not rented anew"
