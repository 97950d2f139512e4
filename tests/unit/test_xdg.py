"""Where this user's files lie: one rule, wherever a command is started, also for what is sent and what sets up."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from sweepstack.onbox import bootstrap
from sweepstack.onbox.common.xdg import cache_folder, data_folder
from sweepstack.onbox.host.box_folders import default_root
from sweepstack.platforms.common import tag_lock

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from lib.places import xdg  # noqa: E402

OWN = {
    "sweepstack/onbox/common/xdg.py",
    "sweepstack/onbox/bootstrap.py",  # runs on a box before a module can be imported
    "scripts/launcher",  # these two run before there is a package
    "scripts/lib/places.py",
    "components/host_setup.py",  # shell; its text is an input in the state of each host
}
"""Who may read the variables."""
READS = re.compile(r"(?:environ|env)\b[^\n]{0,20}XDG_(?:DATA|CACHE)|xdg\(env|\$\{XDG_")


def test_the_tests_themselves_write_into_no_folder_of_the_user() -> None:
    assert not data_folder().is_relative_to(Path.home())


@pytest.mark.parametrize("value", ["relative", "", "/absolute"])
def test_all_ask_for_the_same_folder(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative value is none: else the lock that keeps two `up`s from renting twice is another one in each folder."""
    monkeypatch.setenv("XDG_DATA_HOME", value)
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    data = Path("/absolute") if value == "/absolute" else tmp_path / ".local/share"
    env = {"XDG_DATA_HOME": value, "HOME": str(tmp_path)}
    assert data_folder() == data / "sweepstack"
    assert tag_lock._folder() == data / "sweepstack" / "locks"
    assert default_root() == data / "sweepstack" / "local"
    assert bootstrap.folder("") == str(default_root() / bootstrap.FOLDER)
    assert xdg(env, "XDG_DATA_HOME", ".local/share") == data
    assert runpy.run_path(str(ROOT / "scripts/launcher"))["data_home"](env) == str(data)
    assert cache_folder() == (Path("/absolute") if value == "/absolute" else tmp_path / ".cache") / "sweepstack"


def test_no_other_file_reads_the_variables() -> None:
    files = [*(ROOT / "sweepstack").rglob("*.py"), *(ROOT / "components").rglob("*.py")]
    files += [path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.suffix in ("", ".py", ".sh")]
    found = {str(path.relative_to(ROOT)) for path in files if READS.search(path.read_text(errors="replace"))}
    assert found - OWN == set()
