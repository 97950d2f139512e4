"""What is asked all at once answers the calls that follow, once, as each of them would have been answered."""

from __future__ import annotations

import fcntl
import os

import pytest

from sweepstack.channel import prefetch
from sweepstack.channel.ssh.channel import SshChannel
from sweepstack.channel.ssh.link import Link
from sweepstack.onbox.common.errors import PlatformError, Unreachable
from tests.unit.channel.worlds import SshWorld

WALK = {"limit": 10, "seconds": 5.0}


@pytest.fixture
def channel(ssh_world: SshWorld) -> SshChannel:
    for path in ("data/file", "data/cells/a/1/out/curve", "data/cells/a/2/out/curve", "data/cells/b/1/out/curve"):
        ssh_world.channel.write(path, path.encode())
    os.utime(ssh_world.root / "data/cells/a/1/out/curve", (1, 1))
    return ssh_world.connect()


@pytest.fixture
def asked(channel: SshChannel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests of their own, from now on."""
    seen: list[str] = []
    request = Link.request

    def one(link: Link, verb: str, **words: object) -> None:
        seen.append(verb)
        request(link, verb, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "request", one)
    return seen


def test_each_call_is_answered_once(channel: SshChannel, ssh_world: SshWorld, asked: list[str]) -> None:
    questions = [
        prefetch.read("data/file"),
        prefetch.walk(["data"], **WALK),
        prefetch.tails(["data/file", "data/no"], 4),
    ]
    channel.prefetch([*questions, prefetch.lock_held("data/file"), prefetch.read("data/no")])
    (ssh_world.root / "data/file").write_bytes(b"changed")
    assert channel.read("data/file") == b"data/file"
    assert len(channel.walk(["data"], limit=10, seconds=5.0).files) == 4
    assert channel.tails(["data/file", "data/no"], 4) == {"data/file": (9, b"file")}
    assert not channel.lock_held("data/file")
    with pytest.raises(FileNotFoundError):
        channel.read("data/no")
    assert asked == []
    assert channel.read("data/file") == b"changed", "and the box is asked the second time"
    with open(ssh_world.root / "data/file", "rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert channel.lock_held("data/file")
    assert asked == ["read", "lock_held"]


def test_channels_to_one_box_share_what_came_and_forget_it_together(
    channel: SshChannel, ssh_world: SshWorld, asked: list[str]
) -> None:
    """Also one that was opened while nothing was known: what it changes must not be answered by what came before."""
    answers = prefetch.Answers()
    early, late = ssh_world.connect(answers=answers), ssh_world.connect(answers=answers)
    late.prefetch([prefetch.read("data/file")])
    assert early.read("data/file") == b"data/file"
    assert asked == []
    late.prefetch([prefetch.read("data/file")])
    early.write("data/file", b"changed")
    assert late.read("data/file") == b"changed"


def test_what_was_not_prefetched_is_asked(channel: SshChannel, asked: list[str]) -> None:
    channel.prefetch([prefetch.read("data/file"), prefetch.walk(["data"], **WALK)])
    assert channel.read("data/file", limit=2) == b"da"
    assert len(channel.walk(["data/cells"], limit=10, seconds=5.0).files) == 3
    assert asked == ["read", "walk"]


def test_a_change_makes_all_of_it_old(channel: SshChannel, asked: list[str]) -> None:
    channel.prefetch([prefetch.read("data/file")])
    channel.write("data/file", b"new")
    assert channel.read("data/file") == b"new"
    channel.prefetch([prefetch.read("data/file")])
    channel.run(["sh", "-c", "echo run > data/file"], timeout=60)
    assert channel.read("data/file") == b"run\n"
    channel.prefetch([prefetch.read("data/file")])
    channel.append_locked("data/file", b"appended\n", "data/lock")
    assert channel.read("data/file") == b"run\nappended\n"


def test_an_old_answer_is_none(channel: SshChannel, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    channel.prefetch([prefetch.read("data/file")])
    monkeypatch.setattr(prefetch, "FRESH_SECONDS", -1.0)
    assert channel.read("data/file") == b"data/file"
    assert asked == ["read"]


def test_the_newest_ends_and_what_is_not_there(
    channel: SshChannel, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "MOST_NEWEST", 2)
    names = [f"data/cells/{name}/out/curve" for name in ("a/1", "a/2", "b/1", "b/2")]
    channel.prefetch([prefetch.newest("data/cells", "out/curve", 5)])
    assert channel.tails([names[1], names[2], names[3]], 5) == dict.fromkeys(names[1:3], (24, b"curve"))
    assert asked == [], "the two that changed last came, and it is known that the fourth is not there"
    assert channel.tails([names[0]], 5) == {names[0]: (24, b"curve")}
    assert channel.tails(["data/file", "data/cells/deep/er/1/out/curve"], 5) == {"data/file": (9, b"/file")}
    assert channel.tails([names[1]], 4) == {names[1]: (24, b"urve")}
    assert asked == ["tails"] * 3, "the third, what lies elsewhere, and another length"


def test_too_many_to_look_for_are_asked_for(
    channel: SshChannel, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = prefetch.Answers()
    question = prefetch.newest("data/cells", "out/curve", 5)
    answers.keep([question], [prefetch.PrefetchedAnswer(b"", {"tails": {}, "others": None})])
    assert answers.take_tails(["data/cells/a/1/out/curve"], 5) == ({}, ["data/cells/a/1/out/curve"])
    answers.keep([question], [prefetch.PrefetchedAnswer(b"", {"tails": {}, "others": []})])
    assert answers.take_tails(["data/cells/a/1/out/curve"], 5) == ({}, [])
    for nonsense in (None, {}, {"tails": 1, "others": []}, {"tails": {}, "others": 5}):
        with pytest.raises(Unreachable):
            answers.keep([question], [prefetch.PrefetchedAnswer(b"", nonsense)])


def test_a_link_is_not_followed_among_the_newest(channel: SshChannel, ssh_world: SshWorld, asked: list[str]) -> None:
    (ssh_world.root / "data/cells/c/1").mkdir(parents=True)
    os.symlink(ssh_world.secret.parent, ssh_world.root / "data/cells/c/1/out")
    ssh_world.secret_here.with_name("curve").write_bytes(b"secret")
    channel.prefetch([prefetch.newest("data/cells", "out/curve", 6)])
    assert channel.tails(["data/cells/c/1/out/curve", "data/cells/b/1/out/curve"], 6) == {
        "data/cells/b/1/out/curve": (24, b"/curve")
    }


def test_a_connection_that_broke_is_replaced_and_all_is_asked_again(channel: SshChannel, asked: list[str]) -> None:
    assert channel.python
    for link in channel._links._idle:
        link._process.kill()
        link._process.wait()
    channel.prefetch([prefetch.read("data/file"), prefetch.lock_held("data/file")])
    assert channel.read("data/file") == b"data/file"


def test_half_of_the_answers_are_none(channel: SshChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends after the first of them: neither may be taken, and the link is not used again."""
    whole = Link._whole
    used: list[Link] = []

    def cut(link: Link, *how: object) -> object:
        used.append(link)
        if len(used) % 2 == 0:
            link._process.kill()  # else its end is waited for
            link._buffer.clear()
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), link._from)
        return whole(link, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "_whole", cut)
    with pytest.raises(PlatformError):
        channel.prefetch([prefetch.read("data/file"), prefetch.walk(["data"], limit=10, seconds=0.5)])
    assert not channel._answers
    assert used
    assert not [link for link in channel._links._idle if link in used]  # others may be idle since an earlier test
