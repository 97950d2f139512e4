"""A box that a person runs: a bundle goes out, a folder comes back, and from then on it is a box like any other."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.commands import COMMAND_SECONDS, assert_failed, assert_refused, ok
from tests.engine.conftest import ended
from tests.engine.harness import Stack
from tests.s3.server import S3Server


@dataclass
class HandStack(Stack):
    """One box on a machine that nothing here can reach: another HOME, another folder, the system's own Python."""

    cells: tuple[str, ...] = ("seed0", "seed1")
    boxes: tuple[str, ...] = ("box-0",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.returned, self.away = self.base / "returned", self.base / "away"
        (self.away / "home").mkdir(parents=True)

    @property
    def platform_root(self) -> Path:
        return super().platform_root.with_name("manual")

    @property
    def adapter(self) -> str:
        return f"manual:{self.returned}"

    def write_config(self) -> None:
        super().write_config()
        self.edit_config(
            lambda sweep: sweep.update(
                candidates=["manual"],
                overrides={},
                boxes={box: {"want": "running", "returns": str(self.returned)} for box in self.boxes},
                job={**sweep["job"], "run": "python3 train.py --seed {seed} --out {out}"},
            )
        )

    @property
    def carried(self) -> Path:
        """Where the session's results lie, over there."""
        return self.away / "out"

    def session(self, *more: str) -> subprocess.Popen[str]:
        """What a person types on that machine, after they copied the bundle there."""
        (bundle,) = self.returned.glob("*.zip")
        shutil.copy(bundle, self.away)
        command = ["python3", bundle.name, "--out", "out", "--work", "work", *more]
        env = {"HOME": str(self.away / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        return subprocess.Popen(
            command,
            cwd=self.away,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def cut_off(self, session: subprocess.Popen[str]) -> None:
        """The session's clock: its machine is gone, with all that ran there and all but what was carried out."""
        os.killpg(session.pid, signal.SIGKILL)
        session.communicate()
        self.kill_box(self.native_ids()[0])
        shutil.rmtree(self.away / "work")

    def bring_back(self) -> Path:
        """Copies the folder of results here, as a download does. Returns it."""
        for copy in self.carried.iterdir():
            shutil.copytree(copy, self.returned / copy.name, dirs_exist_ok=True)
        return self.returned / self.native_ids()[0]

    def sealed(self) -> set[str]:
        return {path.parent.name for path in self.carried.glob("*/mnt/durable/*/cells/*/manifest.json")}


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[HandStack]:
    with ended(HandStack(tmp_path)) as stack:
        yield stack


@pytest.mark.proof  # on the handlers: tests/extensions/by_hand, and over histories: test_carry_histories.py
def test_a_person_carries_the_bundle_there_and_the_results_back(hand: HandStack) -> None:
    hand.write_config()
    hand.init()
    up = ok(hand.up())
    assert "to run it by hand" in up.text
    assert "python3 box-0.manual-" in up.text
    assert not any(hand.processes().values()), "nothing was started here"
    status = hand.sweepctl("status")
    assert "nothing has come back yet; its bundle is" in status.text
    assert "ALARM" not in status.text
    assert "(writes the bundle, and says how you run it)" in status.text
    assert {"pending"} == set(states(hand).values())

    hand.hold("seed1")
    first = hand.session()
    hand.wait_for(
        lambda: hand.sealed() == {"seed0"} and journal_of(hand).count(b"cell-started") == 2, "seed0 is carried"
    )
    hand.cut_off(first)
    hand.release()
    back = hand.bring_back()
    assert states(hand)["seed0"] != "pending"
    assert states(hand)["seed1"] != "verified"
    assert_refused(hand.destroy())

    said, _ = hand.session().communicate(timeout=COMMAND_SECONDS)
    assert "another session carried to" in said, "the one that was cut off may still run, for all that is known"
    second = hand.session("--take-over")
    said, _ = second.communicate(timeout=COMMAND_SECONDS)
    assert second.returncode == 0, said
    assert "going on with what lies in" in said
    assert "every cell is done" in said
    assert journal_of(hand).count(b'"cell-started"') == 3, "seed0 was trained once, seed1 again"
    hand.bring_back()

    with changed(next(back.glob("mnt/durable/*/cells/seed1/**/model.safetensors")), b""):
        pull = hand.sweepctl("pull")
        assert pull.rc != 0
        assert "seed1" in pull.text
    journal = back / "data/sweep/journal.jsonl"
    with changed(journal, journal.read_bytes().replace(b"seed1", b"seed9", 1)):
        pull = hand.sweepctl("pull")
        assert pull.rc != 0
        assert "its journal was changed after it was written" in pull.text

    ok(hand.sweepctl("pull"))
    assert hand.verify()["cells"]
    assert_refused(hand.destroy())
    hand.approve()
    ok(hand.up())
    ok(hand.destroy())
    assert hand.native_ids() == []
    assert journal.is_file(), "what was brought back stays"


@pytest.mark.proof  # on the handlers: tests/extensions/by_hand/test_box_by_hand.py
def test_its_folder_and_the_state_are_lost(hand: HandStack) -> None:
    """It stands in the records alone, and nothing can tell whether its session runs. All that fails names the same way
    out, and that way ends it, with nothing rented."""
    hand.write_config()
    hand.init()
    ok(hand.up())
    shutil.rmtree(hand.box_dir("box-0"))
    ok(hand.pulumi("stack", "rm", "--force", "--yes", "--preserve-config"))
    hand.init()
    up = hand.up()
    assert_failed(up, "its session may still run")
    for said in (up, hand.sweepctl("status"), hand.run("sweepctl", "audit"), hand.destroy()):
        words = " ".join(said.text.split())
        assert said.rc != 0, str(said)
        assert "sweepctl give-up --stack t data/box-0 --reason" in words, str(said)
        assert "&& sweepctl confirm gone --stack t box-0 --saw" in words, str(said)
    early = hand.sweepctl("confirm", "gone", "box-0", "--saw", "the tab is closed")
    assert_failed(early, "the end of box box-0", "was not begun")
    approved = ok(hand.sweepctl("give-up", "data/box-0", "--reason", "a drill"))
    assert 'sweepctl confirm gone --stack t box-0 --saw "…"' in approved.text
    ok(hand.sweepctl("confirm", "gone", "box-0", "--saw", "the tab is closed"))
    ok(hand.destroy())
    assert not hand.state().get("resources")
    assert [birth["ended_at"] is not None for birth in hand.births()] == [True]
    assert hand.sweepctl("status", "--json").json()["bills"] == "nothing"


@dataclass
class BucketHand(HandStack):
    """The same, and its results come back to a bucket."""

    uri = "s3://lab/returned/t"

    def write_config(self) -> None:
        super().write_config()
        self.edit_config(lambda sweep: sweep["boxes"]["box-0"].update(returns=self.uri))


@pytest.mark.proof  # on the platform, with the same server: tests/s3/test_by_hand.py
def test_the_loop_by_a_bucket(tmp_path: Path) -> None:
    """Bundle out of the bucket, results back into it; refused while they are not verified, then ended."""
    server = S3Server(tmp_path / "server")
    server.start()
    server.sdk().create_bucket(Bucket="lab")
    try:
        with ended(BucketHand(tmp_path / "stack")) as hand:
            hand.env |= server.environment()
            hand.write_config()
            hand.init()
            assert "python3 box-0.manual-" in ok(hand.up()).text
            (key,) = [one["Key"] for one in server.sdk().list_objects_v2(Bucket="lab")["Contents"]]
            hand.returned.mkdir()
            server.sdk().download_file("lab", key, str(hand.returned / Path(key).name))
            assert_refused(hand.destroy())
            said, _ = hand.session().communicate(timeout=COMMAND_SECONDS)
            assert "every cell is done" in said
            for path in sorted(one for one in hand.carried.rglob("*") if one.is_file()):
                name = f"returned/t/{path.relative_to(hand.carried).as_posix()}"
                server.sdk().upload_file(str(path), "lab", name)
            assert_refused(hand.destroy())
            server.stop()
            down = hand.destroy()
            assert down.rc != 0
            assert hand.native_ids()
            server.start()
            ok(hand.sweepctl("pull"))
            assert hand.verify()["cells"]
            hand.approve()
            ok(hand.up())
            ok(hand.destroy())
            assert hand.native_ids() == []
    finally:
        server.stop()


def states(hand: HandStack) -> dict[str, str]:
    """Cell → its state in `sweepctl status`."""
    return {cell["name"]: cell["state"] for cell in ok_or_no(hand)["cells"]}


def ok_or_no(hand: HandStack) -> dict[str, list[dict[str, str]]]:
    result = hand.sweepctl("status", "--json")
    assert result.rc in (0, 1), str(result)
    return dict(result.json())


def journal_of(hand: HandStack) -> bytes:
    """What was carried of the journal."""
    found = list(hand.carried.glob("*/data/sweep/journal.jsonl"))
    return found[0].read_bytes() if found else b""


@contextlib.contextmanager
def changed(path: Path, data: bytes) -> Iterator[None]:
    """The file with other content, for a while."""
    kept = path.read_bytes()
    path.write_bytes(data)
    yield
    path.write_bytes(kept)
