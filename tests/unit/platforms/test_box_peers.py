"""A box whose cells run over several nodes ends, and stops, only when its other nodes are free."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import PlatformError, RequestRefused
from sweepstack.onbox.host import peers
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait

LOST = 'echo "ann@two: ann@two can\'t be entered from here" >&2; exit 1'


@pytest.fixture
def platform(tmp_path: Path) -> LocalPlatform:
    return LocalPlatform(tmp_path / "store", grace=0.2)


@pytest.fixture
def box(platform: LocalPlatform) -> BoxRecord:
    return platform.create(BoxRequest(tag="sweepstack-a1b2c3-box-0-g1", name="box-0"), wait=Wait(120))


def folder(platform: LocalPlatform, box: BoxRecord) -> Path:
    return platform.where(box.native_id, box.account)[0]


def noted(platform: LocalPlatform, box: BoxRecord, script: str) -> Path:
    """The box's record of its peers, with this script as what frees them."""
    record = folder(platform, box) / "peers.json"
    argv = ["/bin/sh", "-c", script, "sh"]
    record.write_text(json.dumps({"peers": ["ann@two"], "argv": argv}))
    return record


@pytest.mark.parametrize("end", [LocalPlatform.destroy, LocalPlatform.stop])
def test_a_peer_that_is_not_free_keeps_the_box(
    platform: LocalPlatform, box: BoxRecord, tmp_path: Path, end: Callable[..., None]
) -> None:
    record = noted(platform, box, LOST)
    kept = folder(platform, box) / "scratch" / "kept"
    kept.write_text("x")
    with pytest.raises(PlatformError, match=r"(?s)the box stays until they are:\nann@two.*confirm peer BOX") as caught:
        end(platform, box.native_id, box.account)
    assert type(caught.value) is PlatformError, "asking again at once would change nothing"
    assert kept.exists()
    assert record.exists()
    assert platform.get(box.native_id, box.account).phase in (Phase.ENDING, Phase.STOPPING)

    done = tmp_path / "freed"
    noted(platform, box, f"echo once >> {done}")
    end(platform, box.native_id, box.account)
    assert not record.exists()
    end(platform, box.native_id, box.account)
    assert done.read_text() == "once\n", "what is free is not freed again"
    assert platform.get(box.native_id, box.account).phase in (Phase.GONE, Phase.STOPPED)


def test_a_record_that_does_not_read_keeps_the_box(platform: LocalPlatform, box: BoxRecord) -> None:
    record = noted(platform, box, "exit 0")
    record.write_text("{")
    with pytest.raises(PlatformError, match="does not read"):
        platform.destroy(box.native_id, box.account)
    assert record.exists()


def test_a_program_that_is_not_there_proves_nothing(platform: LocalPlatform, box: BoxRecord) -> None:
    record = noted(platform, box, "")
    record.write_text(json.dumps({"peers": ["ann@two"], "argv": ["/nowhere/python"]}))
    with pytest.raises(PlatformError, match=r"ann@two: .*No such file"):
        platform.destroy(box.native_id, box.account)


def test_a_person_s_word_frees_the_box_of_one_that_does_not_answer(
    platform: LocalPlatform, box: BoxRecord, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    noted(platform, box, 'test -z "$1"')  # with a name: fails, as for one that does not answer; without: frees the rest
    with pytest.raises(RequestRefused, match="is no other node"):
        peers.forget(root, box.native_id, "ann@three", "ann: it")
    peers.forget(root, box.native_id, "ann@two", "ann: given back")
    (line,) = (root / "peers-gone.jsonl").read_text().splitlines()
    assert (json.loads(line)["peer"], json.loads(line)["said"]) == ("ann@two", "ann: given back")
    platform.destroy(box.native_id, box.account)

    again = platform.create(BoxRequest(tag="sweepstack-a1b2c3-box-0-g2", name="box-0"), wait=Wait(120))
    noted(platform, again, "exit 0")
    with pytest.raises(RequestRefused, match="answers, so it is not gone"):
        peers.forget(root, again.native_id, "ann@two", "ann: given back")


def test_what_another_host_s_box_has_here_is_no_box_of_this_machine(platform: LocalPlatform, box: BoxRecord) -> None:
    other = folder(platform, box).with_name("host-abcde12345")
    other.mkdir()
    (other / "node-of.json").write_text("{}")
    assert [one.native_id for one in platform.list_tagged("sweepstack-")] == [box.native_id]
    assert platform.find_by_tag("sweepstack-x-box-9-g1") is None
