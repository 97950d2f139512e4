"""Links, sockets and pipes in `{out}`: what they mean is sealed where it is the cell's own, and the rest is named."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.evidence.manifest import parse_manifest
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.runner import sealing
from sweepstack.onbox.runner.sealing import Changed, FilesFailure, Own, open_below, seal
from tests.onbox.harness import IDENTITY, Box, around


class Try:
    """Attempt 2 of a cell, in folders as a box has them."""

    def __init__(self, root: Path) -> None:
        self.root, self.cells = root, root / "volume" / "cells"
        home, tier = root / "home" / "cells" / "c", root / "volume" / "checkpoints" / "c"
        self.first, self.out = home / "1" / "out", home / "2" / "out"
        self.scratch, self.checkpoints, self.other = root / "scratch/c/2", tier / "v2", tier / "v1"
        for folder in (
            self.cells,
            self.first,
            self.out,
            self.scratch,
            root / "scratch/c/1",
            self.checkpoints,
            self.other,
        ):
            folder.mkdir(parents=True)
        (root / "durable").symlink_to("volume")  # as a box has its tier
        for number in ("1", "2"):
            (home / number / "pid").write_text(number)
        self.log = home / "2" / "log.txt"
        self.log.write_text("done\n")

    def seal(self, artifact: str = "m.json", since: int = 0) -> dict[str, Any]:
        """Seals it and gives its manifest, after all its files were compared."""
        own = Own(
            self.out,
            self.scratch,
            self.root / "durable" / self.checkpoints.relative_to(self.root / "volume"),
            (since, since),
        )
        facts = {"schema": 1, "identity": IDENTITY, "cell": "c", "attempt": 2, "config_digest": CONFIG, "params": {}}
        facts.update(box="b", native_id="n", generation=0, code=CONFIG, argv=[], started_at=AT, environment={})
        seal(self.cells, own, self.log, {"artifacts": [{"path": artifact}]}, facts)
        data = (self.cells / "c/manifest.json").read_bytes()
        found: dict[str, Any] = json.loads(data)
        if "doubts" not in found:
            parse_manifest(data, IDENTITY, "c")
        return found

    def held(self, path: str) -> str:
        assert not (self.cells / "c" / path).is_symlink()
        return (self.cells / "c" / path).read_text()


AT = "2026-01-01T00:00:00.000Z"
CONFIG = digest_of({"name": "c", "params": {}})


@pytest.fixture
def one(tmp_path: Path) -> Try:
    made = Try(tmp_path)
    (made.out / "m.json").write_text("{}")
    return made


def paths(manifest: dict[str, Any]) -> set[str]:
    return {file["path"] for file in manifest["files"]}


def test_what_frameworks_leave_is_sealed_on_a_box(box: Box) -> None:
    """Each of these failed a cell that had trained well, and trained it a second time."""
    box.add(
        "a",
        "echo good > {out}/result.json; cd {out}; echo 9 > epoch9.ckpt; ln -s epoch9.ckpt last.ckpt; mkdir step_1; "
        "echo w > step_1/w; ln -s step_1 latest; mkdir wandb; "
        "ln -s $SWEEPSTACK_SCRATCH/big big; echo big > $SWEEPSTACK_SCRATCH/big; "
        "ln -s {checkpoints}/best best; echo best > {checkpoints}/best; ln -s /etc/passwd users; mkfifo wandb/pipe",
    )
    box.run("a")
    folder = box.sealed("a")
    said = {name: (folder / name).read_text() for name in ("last.ckpt", "epoch9.ckpt", "big", "best", "step_1/w")}
    assert said == {"last.ckpt": "9\n", "epoch9.ckpt": "9\n", "big": "big\n", "best": "best\n", "step_1/w": "w\n"}
    assert {file.path for file in box.manifest("a").files} == {*said, "result.json", "log.txt"}
    told = json.loads((folder / "manifest.json").read_bytes())
    assert told["skipped"] == [
        ["latest", "link to step_1 (a folder)"],
        ["users", "link to /etc/passwd (not in a folder of this cell)"],
        ["wandb/pipe", "pipe"],
    ]
    assert "doubts" not in told


def test_a_cell_without_links_has_the_manifest_that_it_had(one: Try) -> None:
    assert one.seal().keys() & {"skipped", "doubts", "names"} == set()


def test_the_same_bytes_are_stored_once(one: Try) -> None:
    (one.out / "epoch9.ckpt").write_text("9")
    (one.out / "last.ckpt").symlink_to("epoch9.ckpt")
    os.link(one.out / "epoch9.ckpt", one.out / "best.ckpt")
    assert paths(one.seal()) == {"m.json", "log.txt", "best.ckpt", "epoch9.ckpt", "last.ckpt"}
    assert len({(one.cells / "c" / name).stat().st_ino for name in ("best.ckpt", "epoch9.ckpt", "last.ckpt")}) == 1
    assert (one.cells / "c/best.ckpt").stat().st_ino != (one.out / "best.ckpt").stat().st_ino


def test_a_tier_without_hard_links_gets_two_copies(one: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    (one.out / "last.json").symlink_to("m.json")
    monkeypatch.setattr(sealing.os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no")))
    one.seal()
    assert one.held("last.json") == one.held("m.json") == "{}"


def test_an_artifact_may_be_a_link_or_lie_behind_one(one: Try) -> None:
    (one.out / "step_9").mkdir()
    (one.out / "step_9/m.pt").write_text("weights")
    (one.out / "latest").symlink_to(one.out / "step_9")
    manifest = one.seal("latest/m.pt")
    assert {file["path"]: file["role"] for file in manifest["files"]}["latest/m.pt"] == "artifact"
    assert one.held("latest/m.pt") == "weights"
    assert [path for path, _ in manifest["skipped"]] == ["latest"]


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("a", "it can't be read: Too many levels of symbolic links"),
        ("/etc/passwd", "not in a folder of this cell"),
        ("../../../../../../../../../../../etc/passwd", "not in a folder of this cell"),
        ("..", "a folder"),
        ("../log.txt", "not in a folder of this cell"),
        ("../../../d", "not in a folder of this cell"),
        ("{root}/scratch/d/1/x", "not in a folder of this cell"),
        ("{root}/scratch/c/1/x", "of try 1"),
        ("../../1/out/x", "of try 1"),
        ("{root}/volume/checkpoints/c/v1/x", "of version v1"),
        ("nowhere", "nothing is there"),
        ("/dev/null", "a device"),
        ("s", "a socket"),
    ],
)
def test_a_link_to_anywhere_else_is_never_copied(one: Try, target: str, what: str) -> None:
    target = target.format(root=one.root)
    for file in ("home/cells/d", "scratch/d/1/x", "scratch/c/1/x", "home/cells/c/1/out/x", "volume/checkpoints/c/v1/x"):
        (one.root / file).parent.mkdir(parents=True, exist_ok=True)
        (one.root / file).write_text("not this one's")
    if target == "s":
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(one.out):
            made.bind("s")
    (one.out / "a").symlink_to(target)
    manifest = one.seal()
    assert ["a", f"link to {target} ({what})"] in manifest["skipped"]
    assert paths(manifest) == {"m.json", "log.txt"}


def test_a_chain_out_and_back_means_the_file_of_the_cell(one: Try) -> None:
    (one.root / "outside").symlink_to(one.out / "m.json")
    (one.out / "a").symlink_to(one.root / "outside")
    (one.out / "b").symlink_to("a")
    one.seal()
    assert one.held("b") == "{}"


def test_a_link_in_the_place_of_scratch_opens_nothing_else(one: Try) -> None:
    """`ln -s / $SWEEPSTACK_SCRATCH` must not make all of the machine the cell's own."""
    one.scratch.rmdir()
    one.scratch.symlink_to("/")
    (one.out / "a").symlink_to(one.scratch / "etc/passwd")
    assert [path for path, _ in one.seal()["skipped"]] == ["a"]


def test_out_itself_may_be_a_link_into_scratch(one: Try) -> None:
    (one.out / "m.json").rename(one.scratch / "m.json")
    one.out.rmdir()
    one.out.symlink_to(one.scratch)
    assert paths(one.seal()) == {"m.json", "log.txt"}
    (one.scratch / "out").mkdir()
    (one.scratch / "m.json").rename(one.scratch / "out/m.json")
    one.out.unlink()
    one.out.symlink_to(one.scratch / "out")
    assert paths(one.seal()) == {"m.json", "log.txt"}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda one: one.out.symlink_to(one.root / "outside"), "is no folder any more, but a link to"),
        (lambda one: one.out.symlink_to(one.scratch.parent), "is no folder any more, but a link to"),
        (lambda one: one.out.write_text(""), "is no folder any more"),
        (lambda one: None, "can't be read"),
    ],
    ids=["elsewhere", "above scratch", "a file", "gone"],
)
def test_out_that_is_no_folder_of_the_cell_is_no_result(one: Try, make: Callable[[Try], object], reason: str) -> None:
    for folder in (one.root / "outside", one.scratch.parent):
        folder.mkdir(exist_ok=True)
        (folder / "m.json").write_text("{}")
    one.out.rename(one.out.with_name("away"))
    make(one)
    with pytest.raises(FilesFailure, match=reason):
        one.seal()
    assert list(one.cells.iterdir()) == []


def swap_file(one: Try) -> None:
    (one.out / "d/x").unlink()
    (one.out / "d/x").symlink_to(one.root / "outside/x")


def swap_folder(one: Try) -> None:
    (one.out / "d").rename(one.out / "e")
    (one.out / "d").symlink_to(one.root / "outside")


def swap_root(one: Try) -> None:
    one.out.rename(one.out.with_name("away"))
    one.out.symlink_to(one.root / "outside")


@pytest.mark.parametrize("swap", [swap_file, swap_folder, swap_root])
def test_a_swap_between_look_and_open_leads_nowhere(
    one: Try, swap: Callable[[Try], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look saw a file of the cell, and when it is opened there is a link to one of the machine."""
    for folder in (one.out / "d", one.root / "outside", one.root / "outside/d"):
        folder.mkdir()
        (folder / "x").write_text("mine" if folder.parent == one.out else "of the machine")
    (one.out / "link").symlink_to("d/x")
    (one.out / "z.json").symlink_to(one.scratch / "z.json")
    (one.scratch / "z.json").write_text("{}")
    opened, swaps, refused = sealing.open_below, [swap], []

    def late(root: Path, file: Path) -> int:
        if file.name == "x" and swaps:
            swaps.pop()(one)
        try:
            return opened(root, file)
        except OSError as error:
            refused.append(error)
            raise

    monkeypatch.setattr(sealing, "open_below", late)
    with pytest.raises(Changed, match="'d/x', 'link'"):
        one.seal("z.json")
    assert len(refused) >= 2
    assert list(one.cells.iterdir()) == []


def test_a_file_that_reads_short_is_not_sealed(one: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk says that it has two bytes, and gives one: nothing else tells that the copy is none."""
    parts = sealing.holes.parts
    monkeypatch.setattr(sealing.holes, "parts", lambda *of: (one[:1] if one == b"{}" else one for one in parts(*of)))
    with pytest.raises(Changed, match=r"'m\.json' changed while it was being sealed"):
        one.seal()
    assert list(one.cells.iterdir()) == []


def test_open_below_follows_nothing(one: Try) -> None:
    (one.out / "d").symlink_to(one.scratch)
    (one.scratch / "x").write_text("x")
    with pytest.raises(OSError, match="Not a directory"):
        open_below(one.out, one.out / "d/x")
    os.close(open_below(one.scratch, one.scratch / "x"))


@pytest.mark.parametrize(
    ("target", "by"),
    [
        ("{root}/volume/checkpoints/c/v2/m", "try 1"),
        ("../../1/out/m", "try 1"),
        ("{root}/durable/checkpoints/c/v1/m", "version v1"),
    ],
)
def test_what_an_earlier_try_or_version_wrote_is_doubted(one: Try, target: str, by: str) -> None:
    for folder in (one.checkpoints, one.first, one.other):
        (folder / "m").write_text("old")
    (one.first.parent / "log.txt").write_text("ended")
    (one.out / "m.json").unlink()
    (one.out / "m.json").symlink_to(target.format(root=one.root))
    (one.out / "later").write_text("x")
    manifest = one.seal(since=(one.out / "later").stat().st_ctime_ns)
    assert one.held("m.json") == "old"
    (doubt,) = manifest["doubts"]
    assert doubt.startswith("m.json is a link to ")
    assert f"which {by} wrote" in doubt


def test_a_try_that_links_to_the_checkpoint_that_it_wrote_is_not_doubted(box: Box) -> None:
    link = "ln -s {checkpoints}/last {out}/result.json"
    box.add("fresh", f"echo 1 > {{checkpoints}}/last; {link}")
    box.add("old", f"if [ $SWEEPSTACK_ATTEMPT = 1 ]; then echo 1 > {{checkpoints}}/last; exit 1; fi; {link}")
    box.run("fresh", "old")
    told = {
        cell: json.loads((box.sealed(cell) / "manifest.json").read_bytes()).get("doubts") for cell in ("fresh", "old")
    }
    assert told["fresh"] is None
    assert "which try 1 wrote" in told["old"][0]


def test_odd_names_are_told_in_plain_text(one: Try) -> None:
    odd = os.fsdecode(b"a\nb\tc\377")
    (one.out / odd).symlink_to("/etc/x\ny" + odd)
    os.mkfifo(one.out / "p\u2028")
    assert one.seal()["skipped"] == [
        ["%_a%0Ab%09c%FF", "link to /etc/%_x%0Aya%0Ab%09c%FF (nothing is there)"],
        ["%_p%E2%80%A8", "pipe"],
    ]


@contextlib.contextmanager
def as_another_user(folder: Path) -> Iterator[None]:
    """Files are opened as `nobody` in this thread, where tests run as root: root reads them all."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    system = ctypes.CDLL(None)
    system.setfsuid(65534)
    try:
        yield
    finally:
        system.setfsuid(0)


@pytest.fixture
def open_one() -> Iterator[Try]:
    """Another user gets there."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        made = Try(Path(folder))
        (made.out / "m.json").write_text("{}")
        yield made


def test_an_extra_that_can_not_be_read_is_doubted(open_one: Try) -> None:
    (open_one.out / "shut").write_text("x")
    (open_one.out / "shut").chmod(0)
    (open_one.out / "closed").mkdir()
    (open_one.out / "closed/file").write_text("x")
    (open_one.out / "closed").chmod(0)
    with as_another_user(open_one.root):
        manifest = open_one.seal()
    assert manifest["doubts"] == ["closed can't be read: Permission denied", "shut can't be read: Permission denied"]
    assert paths(manifest) == {"m.json", "log.txt"}
    (open_one.out / "closed").chmod(0o700)


def test_an_artifact_that_can_not_be_read_fails(open_one: Try) -> None:
    (open_one.out / "m.json").chmod(0)
    with (
        as_another_user(open_one.root),
        pytest.raises(FilesFailure, match=r"artifact m\.json can't be read: Permission"),
    ):
        open_one.seal()


def test_a_file_that_a_disk_can_not_read_is_doubted(box: Box) -> None:
    """EIO in the middle of an extra: what was read of it is not sealed."""
    script = """
        inner = sealing.open_source
        class Bad(sealing.FileIO):
            def readinto(self, room):
                raise OSError(5, "Input/output error")
        def broken(source):
            return Bad(source.file, "rb") if source.path == "bad" else inner(source)
        sealing.open_source = broken"""
    box.add("a", "echo {} > {out}/result.json; echo x > {out}/bad".replace("{}", "1"))
    box.run("a", script=around(box, script))
    told = json.loads((box.sealed("a") / "manifest.json").read_bytes())
    assert told["doubts"] == ["bad can't be read: Input/output error"]
    assert not (box.sealed("a") / "bad").exists()


NAMES = ("a", "b", "d/a", "d/b", "d/e/a", "l/a")
TARGETS = (
    "a",
    "b",
    "d",
    "d/e",
    "../a",
    "d/a",
    "..",
    ".",
    "l",
    "l/a",
    "/etc/hostname",
    "{root}/outside",
    "{root}/outside/x",
)
OWN = (
    "{out}/a",
    "{out}/d",
    "{scratch}/s",
    "{scratch}",
    "{checkpoints}/k",
    "{first}/f",
    "{root}/durable/checkpoints/c/v1/o",
)
TREES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((*TARGETS, *OWN, "file", "file", "folder")), max_size=6)


def grown(one: Try, tree: dict[str, str]) -> None:
    """Makes the tree in `{out}` as far as its parts fit together, and files around it that are not to be read."""
    (one.root / "outside").mkdir()
    for folder, name in ((one.root / "outside", "x"), (one.first, "f"), (one.other, "o")):
        (folder / name).write_text("not this try's")
    for folder, name in ((one.scratch, "s"), (one.checkpoints, "k")):
        (folder / name).write_text("own")
    places = {
        "root": one.root,
        "out": one.out,
        "scratch": one.scratch,
        "checkpoints": one.checkpoints,
        "first": one.first,
    }
    for name, what in tree.items():
        with contextlib.suppress(OSError):
            (one.out / name).parent.mkdir(parents=True, exist_ok=True)
            if (
                one.out.resolve() not in (one.out / name).parent.resolve().parents
                and one.out != (one.out / name).parent
            ):
                continue  # a link on the way leads out: what lies there is not to be changed
            if what == "file":
                (one.out / name).write_text("own")
            elif what == "folder":
                (one.out / name).mkdir()
            else:
                (one.out / name).symlink_to(what.format(**places))


# The second row: as the first, with more trees.
@pytest.mark.parametrize("examples", [10, pytest.param(500, marks=pytest.mark.proof)])
def test_of_any_tree_each_entry_is_sealed_as_its_own_file_or_named(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100, database=None)
    @given(TREES)
    def holds(tree: dict[str, str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            one = Try(Path(folder).resolve())
            (one.out / "m.json").write_text("own")
            grown(one, tree)
            manifest = one.seal()
            assert {one.held(path) for path in paths(manifest) - {"log.txt"}} == {"own"}
            there = {os.path.join(at, name) for at, folders, names in os.walk(one.out) for name in (*folders, *names)}
            entries = {os.path.relpath(path, one.out) for path in there if os.path.islink(path) or os.path.isfile(path)}
            assert entries == {path for path, _ in manifest.get("skipped", [])} | paths(manifest) - {"log.txt"}
            assert "doubts" not in manifest

    holds()
