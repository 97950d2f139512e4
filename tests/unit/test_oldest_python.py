"""What is sent to boxes and hosts says nothing that Python 3.8 does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.channel import agent_source
from sweepstack.launch.ship import checkpoint_files, runner_files
from sweepstack.platforms.ssh import api
from tests.oldest_python import too_new

ROOT = Path(__file__).resolve().parents[2]
SENT = sorted(
    {f"{name.replace('.', '/')}.py" for name in (*agent_source.MODULES, *agent_source.VISITING, *api.MODULES)}
    | {"sweepstack/onbox/agent/bootstrap.py"}
    | {str(path.relative_to(ROOT)) for path in (*checkpoint_files(), *(source for _, source, _ in runner_files()))}
)


@pytest.mark.parametrize("name", SENT)
def test_all_that_is_sent_is_written_for_it(name: str) -> None:
    assert list(too_new((ROOT / name).read_text(encoding="utf-8"), name)) == []


def test_what_it_can_not_do_is_seen() -> None:
    later = [
        'said = {"is": 1} | (more if more else {})',
        "said |= dict(a=1)",
        'name.removeprefix("a")',
        "Names = list[str]",
    ]
    assert len(list(too_new("\n".join(later), "later.py"))) == len(later)
    fine = ["from __future__ import annotations", "names: list[str] = []", "both = {1} | {2}", "x = {**a, **b}"]
    assert list(too_new("\n".join(fine), "fine.py")) == []
