"""The stack file as programs edit it: only the approval, every other byte as a person wrote it."""

from __future__ import annotations

import fcntl
import os
import resource
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.config.edit.stack_file import APPROVED, StackFile, valid_stack_name
from sweepstack.core.records import Abandonment, Action, Approval, Waiver
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.status.engine.call import find_project_root
from tests.at_once import at_once

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
PLAIN = """\
# a person's file
config:
  sweepstack:sweep:
    job:   {workdir: job,   run: "x"}   # aligned by hand
    pull_to: 'results'
"""


def word(
    reason: str = "diverged", receipt: str | None = "sha256:" + "a" * 64, abandon: str = "", boxes: int = 1
) -> Approval:
    waive = (Waiver(cell="lr0.1", reason=reason),)
    given_up = (Abandonment(box="box-0", native_id="local-0", reason=abandon),) if abandon else ()
    return Approval(
        receipt=receipt,
        actions=tuple(Action(verb="destroy", box=f"box-{n}", native_id=f"local-{n}") for n in range(boxes)),
        waive=waive,
        abandon=given_up,
        waivers_digest=Approval.digest_waivers(waive, given_up),
        by="me@here",
        at=NOW,
        expires=NOW + timedelta(hours=72),
    )


def stack_file(folder: Path, text: str | bytes) -> StackFile:
    (folder / "stacks").mkdir(exist_ok=True)
    (folder / "Pulumi.yaml").write_text("name: sweepstack\nruntime: python\nstackConfigDir: stacks\n")
    file = StackFile.locate(folder, "s")
    file.path.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_the_approval_is_the_last_key_and_nothing_else_moves(tmp_path: Path) -> None:
    file = stack_file(tmp_path, PLAIN)
    assert file.write_approval(word())
    text = file.path.read_text()
    assert text.startswith(PLAIN)
    assert text[len(PLAIN) :].splitlines()[:2] == [f"    {APPROVED}", "    approval:"]
    assert list(file.sweep()) == ["job", "pull_to", "approval"]
    assert file.approval() == word()
    assert not file.write_approval(word()), "idempotent"
    assert file.write_approval(word("another reason"))
    assert file.path.read_text().count("approval:") == 1
    assert file.write_approval(None)
    assert file.path.read_text() == PLAIN
    assert not file.write_approval(None)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.rstrip("\n") + "\n",
        PLAIN + "    # placement: and approval: are written below by sweepctl\n",
        PLAIN + "\n\n# the end\n",
        PLAIN + "    # deep\n\n  # shallow\n  other:key: 3\n",
        PLAIN.replace("\n", "\r\n"),
        "config:\n  other:a: 1\n  sweepstack:sweep:\n    a: 1\n\nencryptionsalt: v1:x\n",
        "config:\n  sweepstack:sweep:\n    run: |\n      # not a comment\n      python\n      # nor this\n",
        "config:\n  sweepstack:sweep:\n    list:\n    - a\n    -   b   # kept\n    last:\n      - {x:   1}\n",
        "config:\n    sweepstack:sweep:\n            wide: &anchor {a: 1}\n            again: *anchor\n",
        "config:\n  sweepstack:sweep:\n    unicode: 关机 → é\n    empty:\n",
        "config:\n  sweepstack:sweep:\n    text: >-\n      folded\n\n      twice\n\n\n  z:z: 1\n",
    ],
)
def test_there_and_back_to_the_same_bytes(tmp_path: Path, text: str) -> None:
    file = stack_file(tmp_path, text)
    for approval in (word(), word(receipt=None, abandon="it: 'hangs' # \"always\"", boxes=3)):
        file.write_approval(approval)
        assert file.approval() == approval
        kept = file.path.read_bytes().decode()
        for line in text.splitlines(keepends=True):
            assert line in kept
    file.write_approval(None)
    assert file.path.read_bytes().decode() == text


COMMENTS = st.sampled_from(["", "   # a note", " # approval: not this", "  # 'quoted' \"too\""])
VALUES = st.one_of(
    st.sampled_from(["{a:   1, b: [2,3]}", "[1,  2]", "'it''s'", '"x: y"', "1.10", "no", "~", "0x1f", "2026-01-01"]),
    st.text("abcdefgh é关", min_size=1, max_size=12).map(lambda text: f'"{text}"'),
    st.just("|\n        # inside\n        text"),
    st.just("\n      - 1\n      - {x: 2}"),
)
LINES = st.lists(
    st.tuples(VALUES, COMMENTS, st.sampled_from(["", "\n", "    # between\n", "# far left\n"])), min_size=1
)


@given(
    lines=LINES,
    tail=st.sampled_from(["", "\n", "  other:x: {a: 1}\n", "\n# end\n", "top: 1\n"]),
    reason=st.text(min_size=1),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_person_wrote_stays(
    tmp_path: Path, lines: list[tuple[str, str, str]], tail: str, reason: str
) -> None:
    body = "".join(
        f"{before}    key{number}: {value}{'' if chr(10) in value else comment}\n"
        for number, (value, comment, before) in enumerate(lines)
    )
    text = f"# top\nconfig:\n  sweepstack:sweep:\n{body}{tail}"
    file = stack_file(tmp_path, text)
    approval = word(" ".join(reason.split()) or "x")
    try:
        file.write_approval(approval)
    except ConfigError:
        assert file.path.read_bytes().decode() == text, "refused, and so left alone"
        return
    assert file.approval() == approval
    assert set(text.splitlines()) <= set(file.path.read_bytes().decode().splitlines())
    file.write_approval(None)
    assert file.path.read_bytes().decode() == text


def test_flow_style_is_edited_by_round_trip(tmp_path: Path) -> None:
    file = stack_file(tmp_path, "# kept\nconfig: {sweepstack:sweep: {a: 1, b: [2]}}   # here\n")
    file.write_approval(word())
    assert file.approval() == word()
    assert "# kept" in file.path.read_text()
    assert "# here" in file.path.read_text()
    file.write_approval(None)
    assert file.sweep() == {"a": 1, "b": [2]}


def test_an_approval_in_the_middle_moves_to_the_end(tmp_path: Path) -> None:
    text = PLAIN.replace("    pull_to", "    approval: {receipt: 1}\n    pull_to")
    file = stack_file(tmp_path, text)
    with pytest.raises(ConfigError, match=r"stacks/Pulumi\.s\.yaml: approval"):
        file.approval()
    file.write_approval(word())
    assert list(file.sweep()) == ["job", "pull_to", "approval"]
    file.write_approval(None)
    assert file.path.read_text() == PLAIN


def test_mode_and_links_are_kept(tmp_path: Path) -> None:
    file = stack_file(tmp_path, PLAIN)
    real = tmp_path / "real.yaml"
    os.rename(file.path, real)
    file.path.symlink_to(real)
    real.chmod(0o600)
    file.write_approval(word())
    assert file.path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_two_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    file = stack_file(tmp_path, PLAIN)
    words = [word(f"reason {number}") for number in range(8)]
    at_once(file.write_approval, words)
    assert file.approval() in words
    assert file.path.read_text().count("approval:") == 1
    assert list(tmp_path.glob("stacks/.*")) == []


def test_a_writer_waits_for_the_one_before(tmp_path: Path) -> None:
    file = stack_file(tmp_path, PLAIN)
    held = os.open(file.path.parent, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    writer = threading.Thread(target=file.write_approval, args=(word(),))
    writer.start()
    writer.join(0.2)
    assert writer.is_alive()
    assert file.path.read_text() == PLAIN
    os.close(held)
    writer.join(60)
    assert file.approval() == word()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config:\n  a: [1\n", "stacks/Pulumi.s.yaml, line 3: not valid YAML"),
        ("config:\n  other:x: 1\n", "there is no config.sweepstack:sweep"),
        ("", "there is no config.sweepstack:sweep"),
        ("config:\n  sweepstack:sweep:\n    a: 1\n    a: 2\n", "stacks/Pulumi.s.yaml, line 4: this key stands twice"),
        ("- 1\n", "stacks/Pulumi.s.yaml, line 1: expected keys and values"),
        (b"\xff\xfe", "can't be read"),
    ],
)
def test_a_file_that_is_no_stack_file(tmp_path: Path, text: str | bytes, said: str) -> None:
    file = stack_file(tmp_path, text)
    before = file.path.read_bytes()
    with pytest.raises(ConfigError, match=said):
        file.write_approval(word())
    assert file.path.read_bytes() == before


def test_a_disk_that_takes_nothing_leaves_the_file_and_says_which(tmp_path: Path) -> None:
    file = stack_file(tmp_path, PLAIN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"stacks/Pulumi\.s\.yaml can't be written: .*It was left as it is"):
            file.write_approval(word())
        with pytest.raises(ConfigError, match=r"stacks/Pulumi\.s\.yaml can't be written: .*It was left as it is"):
            file.write_pull_to("s3://bucket/elsewhere")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.path.read_text() == PLAIN
    assert sorted(path.name for path in file.path.parent.iterdir()) == [file.path.name]


def test_no_file(tmp_path: Path) -> None:
    file = stack_file(tmp_path, PLAIN)
    file.path.unlink()
    with pytest.raises(ConfigError, match="sweepctl init s"):
        file.write_approval(word())
    assert file.pull_to() is None


def test_the_project_is_found_upward(tmp_path: Path) -> None:
    stack_file(tmp_path, PLAIN)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_project_root(below) == tmp_path
    assert StackFile.stacks(tmp_path) == ["s"]
    assert StackFile.locate(tmp_path, "org/sweepstack/s").path == tmp_path / "stacks/Pulumi.s.yaml"


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a b", "a/b", "..", "a" * 64])
def test_names_that_become_no_file(name: str) -> None:
    assert not valid_stack_name(name)
