"""A work dir that is a git URL: real repositories, fetched by git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sweepstack.core import git_source
from sweepstack.core.git_source import GitSource, fetched, parse, pinned
from sweepstack.core.workdir import collect, located
from sweepstack.onbox.common.errors import ConfigError


class Repository:
    """A repository that others fetch from. `url` is what they name it by."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", "more")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Repository(tmp_path / "repository")
    found.commit(train_py="print(1)\n", pkg__net_py="w = 1\n")
    return found


def source(text: str) -> GitSource:
    found = parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "url", "ref", "folder"),
    [
        ("https://github.com/lab/digits@v1.2", "https://github.com/lab/digits", "v1.2", ""),
        ("https://github.com/lab/digits.git@feature/x", "https://github.com/lab/digits.git", "feature/x", ""),
        ("git@github.com:lab/digits.git@main", "git@github.com:lab/digits.git", "main", ""),
        ("ssh://git@h:2222/digits.git@main", "ssh://git@h:2222/digits.git", "main", ""),
        ("ann@h:/srv/digits@main#subdirectory=a/b/", "ann@h:/srv/digits", "main", "a/b"),
        ("file:///srv/digits@main", "file:///srv/digits", "main", ""),
    ],
)
def test_what_is_a_git_url(text: str, url: str, ref: str, folder: str) -> None:
    assert source(text) == GitSource(url, ref, folder)
    assert source(str(source(text))) == source(text)


@pytest.mark.parametrize("text", ["examples/digits", "/srv/digits", "~/digits@old", "../a b", "a@b/c"])
def test_what_is_a_folder(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("ext::sh -c id@main", "git://h/x@main", "https://h/@main", "https://h/x@", "https://h/x@--upload-pack=id"),
        *("https://tok@h/x@main", "ssh://a:b@h/x@main", "git@h:x", "file:///x@a..b", "git@h:x@main#subdirectory=/a"),
    ],
)
def test_what_is_neither(text: str) -> None:
    if "::" in text:
        assert parse(text) is None  # a folder of an odd name, which is not there
        return
    with pytest.raises(ConfigError, match=r"^job\.workdir: "):
        parse(text)


def test_a_branch_is_the_commit_that_it_is_now(repository: Repository, tmp_path: Path) -> None:
    first = repository.git("rev-parse", "HEAD")
    before = pinned(source(f"{repository.url}@main"))
    assert before.ref == first
    second = repository.commit(train_py="print(2)\n")
    assert pinned(source(f"{repository.url}@main")).ref == second
    assert (fetched(before) / "train.py").read_text() == "print(1)\n"
    assert (located(tmp_path, f"{repository.url}@main") / "train.py").read_text() == "print(2)\n"


def test_a_tag_comes_before_a_branch_and_is_its_commit(repository: Repository) -> None:
    tagged = repository.git("rev-parse", "HEAD")
    repository.git("tag", "-a", "-m", "x", "v1")
    repository.git("checkout", "-qb", "v1")
    repository.commit(train_py="print(2)\n")
    assert pinned(source(f"{repository.url}@v1")).ref == tagged


def test_a_commit_that_was_fetched_needs_no_network(repository: Repository) -> None:
    commit = pinned(source(f"{repository.url}@main"))
    said: list[str] = []
    there = fetched(commit, said.append)
    repository.folder.rename(repository.folder.with_name("gone"))
    assert fetched(pinned(commit), said.append) == there
    assert said == [f"job.workdir: fetching {commit}"]
    with pytest.raises(ConfigError, match="git can't read file://"):
        pinned(source(f"{repository.url}@main"))


def test_what_ships_is_what_was_committed(repository: Repository) -> None:
    """Also when somebody has tried something in the cache, or a run has left something there."""
    commit = pinned(source(f"{repository.url}@main"))
    there = fetched(commit)
    digest = collect(there).digest
    assert [file.path for file in collect(there).files] == ["pkg/net.py", "train.py"]
    (there / "train.py").write_text("print('tried')\n")
    assert collect(fetched(commit)).digest == digest
    (there / "more.py").write_text("")
    assert not (fetched(commit) / "more.py").exists()


def test_a_folder_of_it_ships_alone(repository: Repository, tmp_path: Path) -> None:
    folder = located(tmp_path, f"{repository.url}@main#subdirectory=pkg")
    assert [file.path for file in collect(folder).files] == ["net.py"]
    with pytest.raises(ConfigError, match="has no folder 'other'"):
        located(tmp_path, f"{repository.url}@main#subdirectory=other")


def test_a_hook_s_own_checkout_is_not_meant(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_WORK_TREE", "/nowhere")
    assert (fetched(pinned(source(f"{repository.url}@main"))) / "train.py").exists()


def test_submodules_come_along(repository: Repository, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit(layer_py="w = 2\n")
    repository.git("submodule", "--quiet", "add", inner.url, "vendored")
    repository.git("commit", "-qm", "more")
    there = located(tmp_path, f"{repository.url}@main")
    assert "vendored/layer.py" in [file.path for file in collect(there).files]
    assert fetched(pinned(source(f"{repository.url}@main"))) == there


def test_a_server_that_gives_no_commit_by_name_is_asked_for_all(repository: Repository) -> None:
    old = repository.git("rev-parse", "HEAD")
    repository.commit(train_py="print(2)\n")
    for setting in ("uploadpack.allowReachableSHA1InWant", "uploadpack.allowAnySHA1InWant"):
        repository.git("config", setting, "false")
    assert (fetched(source(f"{repository.url}@{old}")) / "train.py").read_text() == "print(1)\n"


def test_what_is_not_there_is_said(repository: Repository) -> None:
    with pytest.raises(ConfigError, match=r"has no branch and no tag 'mian'; git ls-remote"):
        pinned(source(f"{repository.url}@mian"))
    with pytest.raises(ConfigError, match="is written with all of its 40 digits"):
        pinned(source(f"{repository.url}@0123abcd"))
    with pytest.raises(ConfigError, match="git can't read"):
        fetched(source(f"{repository.url}@{'0' * 40}"))
    assert list(git_source.cache_folder().glob("git/*/*")) == []


def test_a_server_that_is_silent_is_not_waited_for(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_source, "ASK_SECONDS", 0.2)
    monkeypatch.setenv("GIT_SSH_COMMAND", "sleep 60; :")
    with pytest.raises(ConfigError, match="did not answer within"):
        pinned(source("ann@h:digits@main"))
