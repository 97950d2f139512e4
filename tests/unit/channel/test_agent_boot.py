"""What is sent to a machine is loaded there, and kept compiled only where nobody else could have put something else."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.onbox import bootstrap
from sweepstack.onbox.host.box_folders import default_root

NAME = "sent_by_a_test.inner.module"


def blob(word: str = "sent") -> bytes:
    return zlib.compress(json.dumps([(NAME, f"word = {word!r}\n"), ("sent_by_a_test.broken", "1/0")]).encode())


@pytest.fixture(autouse=True)
def importing() -> Iterator[None]:
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sent_by_a_test"]:
        del sys.modules[name]


def loaded(sent: bytes, kept_in: Path | str = "") -> str:
    forget()
    bootstrap.load(sent, str(kept_in))
    __import__(NAME)
    return str(sys.modules[NAME].word)


def plant(folder: Path, word: str = "kept") -> Path:
    """Other code under the name that is looked for, in the form in which it is kept."""
    assert loaded(blob(), folder) == "sent"
    (file,) = folder.iterdir()
    body = marshal.dumps({NAME: compile(f"word = {word!r}", "kept", "exec")})
    file.write_bytes(hashlib.sha256(body).digest() + body)
    return file


def test_a_module_is_loaded_when_it_is_asked_for() -> None:
    assert loaded(blob()) == "sent"
    assert sys.modules[NAME].__file__ == f"<sweepstack>/{NAME}"
    assert "sent_by_a_test.broken" not in sys.modules
    with pytest.raises(ZeroDivisionError):
        __import__("sent_by_a_test.broken")
    with pytest.raises(ModuleNotFoundError):
        __import__("sent_by_a_test.other")


def test_what_was_compiled_is_used_the_next_time(tmp_path: Path) -> None:
    file = plant(tmp_path / "agent")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert loaded(blob(), tmp_path / "agent") == "kept"
    assert loaded(blob("other"), tmp_path / "agent") == "other", "which is another name"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_may_use_is_not_used(tmp_path: Path, mode: int) -> None:
    plant(tmp_path / "agent").chmod(mode)
    assert loaded(blob(), tmp_path / "agent") == "sent"


def test_a_folder_that_others_may_use_is_not_used_nor_written_to(tmp_path: Path) -> None:
    plant(tmp_path / "agent")
    (tmp_path / "agent").chmod(0o755)
    assert loaded(blob(), tmp_path / "agent") == "sent"
    assert loaded(blob("other"), tmp_path / "agent") == "other"
    assert len(list((tmp_path / "agent").iterdir())) == 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    file = plant(tmp_path / "agent")
    (tmp_path / "link").symlink_to(tmp_path / "agent")
    assert loaded(blob(), tmp_path / "link") == "sent"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert loaded(blob(), tmp_path / "agent") == "sent"


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives files away")
def test_what_belongs_to_somebody_else_is_not_used(tmp_path: Path) -> None:
    file = plant(tmp_path / "agent")
    os.chown(file, 12345, 12345)
    assert loaded(blob(), tmp_path / "agent") == "sent"
    plant(tmp_path / "other")
    os.chown(tmp_path / "other", 12345, 12345)
    assert loaded(blob(), tmp_path / "other") == "sent"


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: bytes | None) -> None:
    file = plant(tmp_path / "agent")
    file.write_bytes(file.read_bytes()[:-1] if damage is None else damage)
    assert loaded(blob(), tmp_path / "agent") == "sent"
    data = file.read_bytes()
    assert hashlib.sha256(data[32:]).digest() == data[:32]
    assert NAME in marshal.loads(data[32:])


def test_what_can_not_be_kept_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(blob(), tmp_path / "nowhere" / "agent") == "sent"
    assert list(tmp_path.iterdir()) == [], "nothing is made above it"

    def full(*_words: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert loaded(blob(), tmp_path / "agent") == "sent"
    assert list((tmp_path / "agent").iterdir()) == [], "and no half of it stays"


def test_of_old_ones_few_are_kept(tmp_path: Path) -> None:
    for number in range(bootstrap.KEPT + 3):
        assert loaded(blob(str(number)), tmp_path / "agent") == str(number)
    assert len(list((tmp_path / "agent").iterdir())) == bootstrap.KEPT


@pytest.mark.parametrize("data", ["", "/absolute", "relative"])
def test_it_lies_in_the_platforms_own_folder(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", data)
    assert bootstrap.folder("") == str(default_root() / bootstrap.FOLDER)
    assert bootstrap.folder("/data/ours") == f"/data/ours/{bootstrap.FOLDER}"
    assert bootstrap.folder(None) == ""
