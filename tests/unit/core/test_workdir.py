"""What ships, what stays, and what is refused because it looks like a key."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sweepstack.core.workdir import collect
from sweepstack.onbox.common.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "pkg" / "net.py").write_text("w = 1\n")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True)


def paths(folder: Path, *include: str) -> list[str]:
    return [file.path for file in collect(folder, include).files]


def test_outside_git_all_but_dotfiles_and_caches(folder: Path) -> None:
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("x")
    (folder / ".hidden").write_text("x")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert paths(folder) == ["pkg/net.py", "train.py"]


def test_in_git_the_tracked_files_as_they_lie_there(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    (folder / "train.py").write_text("changed\n")
    (folder / "notes.txt").write_text("untracked")
    (folder / "pkg" / "net.py").unlink()
    shipment = collect(folder)
    assert [(file.path, file.size) for file in shipment.files] == [("train.py", 8)]
    assert shipment.left_behind == ("notes.txt",)
    assert shipment.bytes == 8


def test_a_subfolder_of_a_checkout_ships_alone(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    assert paths(folder / "pkg") == ["net.py"]


def test_a_checkout_that_tracks_nothing_there_is_refused(folder: Path) -> None:
    git(folder, "init", "-q")
    with pytest.raises(ConfigError, match="git add"):
        collect(folder)


def test_a_git_that_fails_is_not_taken_for_no_git(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    (folder / ".git" / "index").write_bytes(b"rubbish")
    with pytest.raises(ConfigError, match="git can't list"):
        collect(folder)


def test_includes_ship_untracked_files_and_folders(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "train.py")
    (folder / "data").mkdir()
    (folder / "data" / "a.bin").write_bytes(b"1")
    (folder / "data" / "b.bin").write_bytes(b"2")
    assert paths(folder, "data") == ["data/a.bin", "data/b.bin", "train.py"]
    assert paths(folder, "data/a*") == ["data/a.bin", "train.py"]
    for wrong in ("*.nope", "../x", "/etc/passwd"):
        with pytest.raises(ConfigError, match=r"job\.include"):
            collect(folder, [wrong])


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "id_rsa", "id_ed25519", "server.pem", "aws/credentials", "credentials.json", "x.KEY"]
)
def test_files_that_look_like_a_key_are_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x")
    with pytest.raises(ConfigError, match="looks like a key") as caught:
        collect(folder, [name])
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["id_rsa.pub", "env.example", "credentials.py"])
def test_public_halves_examples_and_sources_pass(folder: Path, name: str) -> None:
    (folder / name).write_text("x")
    assert name in paths(folder)


def test_a_private_key_is_found_wherever_it_stands(folder: Path) -> None:
    mark = b"-----BEGIN OPENSSH " + b"PRIVATE KEY-----"
    (folder / "blob.bin").write_bytes(b"x" * ((1 << 20) - 10) + mark + b"x" * 100)
    (folder / "doc.txt").write_text("a PRIVATE KEY is not for shipping")
    with pytest.raises(ConfigError, match=r"blob\.bin: holds a PRIVATE KEY") as caught:
        collect(folder)
    assert "doc.txt" not in str(caught.value)


def test_all_problems_at_once(folder: Path) -> None:
    (folder / "a.pem").write_text("x")
    (folder / "b.pem").write_text("x")
    (folder / "out").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError) as caught:
        collect(folder)
    assert len(caught.value.problems) == 3


def test_links_inside_ship_as_content_and_links_out_are_refused(folder: Path) -> None:
    (folder / "alias.py").symlink_to("train.py")
    shipped = {file.path: file for file in collect(folder).files}
    assert shipped["alias.py"].sha256 == shipped["train.py"].sha256
    (folder / "dangling").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="link to nothing"):
        collect(folder)


def test_names_that_no_box_could_hold_are_refused(folder: Path) -> None:
    (folder / "a\nb").write_text("x")
    with pytest.raises(ConfigError, match="line break"):
        collect(folder)


def test_the_digest_covers_path_mode_and_content_and_nothing_else(folder: Path) -> None:
    first = collect(folder).digest
    os.utime(folder / "train.py", (0, 0))
    (folder / "train.py").chmod(0o600)
    assert collect(folder).digest == first
    (folder / "train.py").chmod(0o755)
    executable = collect(folder).digest
    (folder / "train.py").write_text("print(2)\n")
    changed = collect(folder).digest
    (folder / "train.py").rename(folder / "main.py")
    assert len({first, executable, changed, collect(folder).digest}) == 4


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        collect(tmp_path / "nope")


def test_a_pointer_of_git_lfs_is_not_the_file(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n".format("0" * 64)
    (folder / "data.bin").write_text(pointer)
    with pytest.raises(
        ConfigError, match=r"data\.bin: is a pointer of Git LFS and not the file: git lfs install && git"
    ):
        collect(folder)
    (folder / "data.bin").write_text("version https://git-lfs.github.com/spec/v1\n" + 1024 * "x")
    assert "data.bin" in paths(folder)
