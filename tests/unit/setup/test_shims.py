"""The commands in ~/.local/bin: they find the checkout around the current folder and never displace anybody else's."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.lib.engine import is_ours
from scripts.lib.launchers import install_shims
from tests.unit.setup.conftest import Checkout, write_command


def shim(checkout: Checkout, name: str, cwd: Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [name, "up"],
        cwd=cwd,
        env={"HOME": str(checkout.home), "PATH": f"{checkout.places.user_bin}:{path}"},
        executable=str(checkout.places.user_bin / name),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def env_with(checkout: Checkout, path: str = "/usr/bin") -> dict[str, str]:
    return {"PATH": f"{checkout.places.user_bin}:{path}"}


def test_shim_runs_the_command_of_the_checkout_around(checkout: Checkout) -> None:
    notes = install_shims(checkout.places, env_with(checkout))
    assert len(notes) == 2
    checkout.places.record.write_text("{}")
    write_command(checkout.places.bin / "sweepctl", '#!/bin/sh\necho ours "$@"\n')
    deep = checkout.places.root / "a" / "b"
    deep.mkdir(parents=True)
    assert shim(checkout, "sweepctl", deep).stdout == "ours up\n"
    assert '"argv": ["up"]' in shim(checkout, "pulumi", deep).stdout


def test_in_a_checkout_that_was_moved_each_command_says_so_and_names_the_way_out(checkout: Checkout) -> None:
    """It said "cannot execute: required file not found"."""
    install_shims(checkout.places, env_with(checkout))
    checkout.places.record.write_text("{}")
    checkout.install()
    write_command(checkout.places.bin / "sweepctl", f"#!{checkout.places.python}\nprint('ours')\n")
    moved = checkout.places.root.rename(checkout.places.root.with_name("moved"))
    for name in ("pulumi", "sweepctl"):
        done = shim(checkout, name, moved)
        assert done.returncode == 126
        assert done.stderr.startswith("error: this checkout was moved")
        assert "setup" in done.stderr
        assert "not found" not in done.stderr


def test_shim_outside_a_checkout_runs_the_next_command_on_path(checkout: Checkout, tmp_path: Path) -> None:
    install_shims(checkout.places, env_with(checkout))
    write_command(tmp_path / "opt" / "pulumi", '#!/bin/sh\necho theirs "$@"\n')
    assert shim(checkout, "pulumi", tmp_path, f"/usr/bin:{tmp_path}/opt:/bin").stdout == "theirs up\n"


def test_shim_with_nothing_to_run_says_so(checkout: Checkout, tmp_path: Path) -> None:
    install_shims(checkout.places, env_with(checkout))
    done = shim(checkout, "pulumi", tmp_path)
    assert done.returncode == 127
    assert "make up" in done.stderr
    assert ". .venv/bin/activate" in done.stderr, "what helps where the package is installed"


def test_foreign_file_is_never_overwritten(checkout: Checkout, tmp_path: Path) -> None:
    theirs = write_command(checkout.places.user_bin / "pulumi", "#!/bin/sh\necho theirs\n")
    target = write_command(tmp_path / "target", "#!/bin/sh\n")
    (checkout.places.user_bin / "sweepctl").symlink_to(target)
    notes = install_shims(checkout.places, env_with(checkout))
    assert theirs.read_text() == "#!/bin/sh\necho theirs\n"
    assert (checkout.places.user_bin / "sweepctl").is_symlink()
    assert sum("left alone" in note for note in notes) == 2


def test_dangling_link_is_not_overwritten(checkout: Checkout, tmp_path: Path) -> None:
    checkout.places.user_bin.mkdir(parents=True)
    (checkout.places.user_bin / "pulumi").symlink_to(tmp_path / "gone")
    assert any("left alone" in note for note in install_shims(checkout.places, env_with(checkout)))
    assert (checkout.places.user_bin / "pulumi").is_symlink()


def test_own_old_shim_is_brought_up_to_date_and_a_second_run_is_silent(checkout: Checkout) -> None:
    old = write_command(checkout.places.user_bin / "pulumi", "#!/bin/sh\n# sweepstack-shim of long ago\n")
    install_shims(checkout.places, env_with(checkout))
    assert old.read_text() == (checkout.places.root / "scripts" / "shim").read_text()
    assert install_shims(checkout.places, env_with(checkout)) == []


def test_folder_not_on_path_gives_the_line_to_add(checkout: Checkout) -> None:
    notes = install_shims(checkout.places, {"PATH": "/usr/bin:/bin"})
    assert any('export PATH="$HOME/.local/bin:$PATH"' in note for note in notes)


def test_other_pulumi_that_comes_first_is_named(checkout: Checkout, tmp_path: Path) -> None:
    theirs = write_command(tmp_path / "opt" / "pulumi", "#!/bin/sh\n")
    env = {"PATH": f"{theirs.parent}:{checkout.places.user_bin}"}
    assert any(str(theirs) in note and "comes first" in note for note in install_shims(checkout.places, env))


def test_read_only_home_is_said_and_no_failure(checkout: Checkout) -> None:
    (checkout.home / ".local").write_text("a file where a folder should be")
    notes = install_shims(checkout.places, env_with(checkout))
    assert sum("cannot be written" in note for note in notes) == 2


def test_launcher_and_shim_are_recognised(checkout: Checkout, tmp_path: Path) -> None:
    install_shims(checkout.places, env_with(checkout))
    assert is_ours(checkout.places.bin / "pulumi")
    assert is_ours(checkout.places.user_bin / "pulumi")
    assert not is_ours(checkout.engine)
