"""`sweepctl approve --sign` and `sweepctl cosign`, with keys of ssh-keygen: what is signed, refused, kept."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweepstack.cli.commands import approve as approving
from sweepstack.cli.commands.approve.sign import SIGNER, SIGNING_KEY
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.state import parse_export
from sweepstack.teardown.abandonment import recorded_approvals
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.check import may_end
from sweepstack.teardown.revocation import approval_digest
from sweepstack.teardown.signatures import verified_signers
from tests.unit.cli.support import IDENTITY, STACK, World
from tests.unit.cli.test_approve import approval, untouched
from tests.unit.cli.test_store_commands import KEEPER, Keep

SWEEP = SweepName(project="sweepstack", stack=STACK, identity=IDENTITY)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys `ann` and `bob` without a passphrase, and `locked`, which has one."""
    folder = tmp_path_factory.mktemp("keys")
    for name, passphrase in (("ann", ""), ("bob", ""), ("locked", "a passphrase")):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=300)
    return folder


@pytest.fixture(autouse=True)
def no_settings(world: World, tmp_path: Path) -> Path:
    """Git knows no person here, and there is no agent and no key. Returns git's settings file, which is empty."""
    settings = tmp_path / "gitconfig"
    settings.write_text("")
    world.monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    world.monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("SWEEPSTACK_SSH_KEY", "SSH_AUTH_SOCK", "SSH_ASKPASS", "DISPLAY"):
        world.monkeypatch.delenv(name, raising=False)
    return settings


def by(keys: Path, name: str, how: str = "--sign") -> list[str]:
    return [f"{SIGNING_KEY}={keys / name}", f"{SIGNER}={name}@lab.org", *filter(None, [how])]


def signers(word: Approval) -> list[str]:
    """Who signed, all good, for this sweep."""
    found = verified_signers(word, SWEEP, None, at=datetime.now(UTC))
    assert not found.problems
    return list(found.principals)


def test_what_a_person_said_yes_to_is_written_signed(world: World, keys: Path) -> None:
    *_, receipt = world.verified()
    untouched(world, *by(keys, "ann"), types="no")
    result = world.run("approve", *by(keys, "ann"), types="yes")
    assert result.code == 0, result
    assert "signing   as ann@lab.org, after your yes" in result.out
    assert "signed by ann@lab.org" in result.out.splitlines()
    assert approval(world).receipt == receipt
    assert signers(approval(world)) == ["ann@lab.org"]
    world.up()
    seen = world.run("status", "--json").json
    assert [gate["state"] for gate in seen["gates"]] == ["cleared", "cleared"]
    assert "signed box-0, box-1: by ann@lab.org (SHA256:" in world.run("status").out, "one line for both"
    assert seen["gates"][0]["approvals"][0]["signed_by"][0]["listed"] is False, "no policy pins a list"
    text = world.file.path.read_text()
    world.file.path.write_text(text.replace("destroy", "stop", 1))
    assert text != world.file.path.read_text()
    assert not verified_signers(approval(world), SWEEP, None, at=datetime.now(UTC)).principals


def test_without_a_terminal_a_digest_is_the_yes_and_the_command_shown_signs(world: World, keys: Path) -> None:
    *_, receipt = world.verified()
    command = f"sweepctl approve --stack {STACK} {receipt} --box box-0 --box box-1 --sign"
    assert command in untouched(world, *by(keys, "ann")).replace("\n", " ")
    assert world.run("approve", *by(keys, "ann", ""), *command.split()[4:]).code == 0
    assert signers(approval(world)) == ["ann@lab.org"]


def test_who_signs_and_with_what_comes_from_git(world: World, keys: Path, no_settings: Path) -> None:
    *_, receipt = world.verified()
    world.monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(keys / "bob"))
    no_settings.write_text(f"[user]\n email = carol@lab.org\n signingkey = {keys / 'ann'}.pub\n[gpg]\n format = ssh\n")
    assert world.run("approve", "--sign", receipt).code == 0
    assert signers(approval(world)) == ["carol@lab.org"]
    with_ann = verified_signers(approval(world), SWEEP, None, at=datetime.now(UTC)).valid["carol@lab.org"]
    no_settings.write_text("[user]\n email = carol@lab.org\n signingkey = ABCDEF\n")  # a key of GnuPG
    assert world.run("approve", "--sign", receipt).code == 0
    assert verified_signers(approval(world), SWEEP, None, at=datetime.now(UTC)).valid["carol@lab.org"] != with_ann


@pytest.mark.parametrize("box", [[], ["--box", "box-0"]])
def test_finish_signs_what_it_approves_and_the_report_says_who(world: World, keys: Path, box: list[str]) -> None:
    *_, receipt = world.verified()
    world.on("up", "true")
    said = world.run("finish", *by(keys, "ann"), receipt, *box)
    options = " ".join([*box, "--sign"])
    assert f"$ sweepctl approve --stack {STACK} {receipt} {options}" in said.out.splitlines(), said
    assert signers(approval(world)) == ["ann@lab.org"]
    assert world.run("results", "--as", "html").code == 0
    page = (world.root / f"report-{STACK}.html").read_text("utf-8")
    assert f"{approval(world).by}, signed by ann@lab.org" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([f"{SIGNER}=ann@lab.org"], "SWEEPSTACK_SIGNING_KEY=PATH"),
        ([f"{SIGNING_KEY}=ann"], "SWEEPSTACK_SIGNER=NAME"),
        ([f"{SIGNING_KEY}=ann", f"{SIGNER}=*@lab.org"], "can't stand in a list of signers"),
        ([f"{SIGNING_KEY}=-----BEGIN OPENSSH PRIVATE KEY-----abc", f"{SIGNER}=ann"], "is a private key itself"),
    ],
)
def test_what_is_missing_to_sign_is_said_before_anything_is_asked(
    world: World, arguments: list[str], words: str
) -> None:
    world.verified()
    before = world.file.path.read_bytes()
    for how in (("approve", "--sign"), ("cosign",)):
        result = world.run(*how, *arguments, types="yes")
        assert result.code == 2
        assert words in result.err.replace("\n", " ")
        assert "abc" not in result.err
    assert world.file.path.read_bytes() == before


@pytest.mark.parametrize(("key", "words"), [("locked", "could not be used"), ("nokey", "there is no key")])
def test_a_key_that_can_not_sign_writes_nothing(world: World, keys: Path, key: str, words: str) -> None:
    first, _, receipt = world.verified()
    said = untouched(world, *by(keys, key), receipt)
    assert "nothing was written" in said
    assert words in said.replace("\n", " ")
    untouched(world, *by(keys, key), "data/box-0", "--reason", "broken", verb="give-up")
    assert world.store.clearance(first.native_id) is None


def test_a_second_person_signs_what_stands_and_changes_nothing_else(world: World, keys: Path) -> None:
    *_, receipt = world.verified()
    world.run("approve", *by(keys, "ann"), receipt)
    first = approval(world)
    untouched(world, *by(keys, "bob", ""), types="no", verb="cosign")
    untouched(world, *by(keys, "bob", ""), receipt, verb="cosign")
    asked = untouched(world, *by(keys, "bob", ""), verb="cosign")
    assert f"sweepctl cosign --stack {STACK} {approval_digest(first)}" in asked.replace("\n", " ")
    result = world.run("cosign", *by(keys, "bob", ""), types="yes")
    assert result.code == 0, result
    for words in (receipt, f"approval {approval_digest(first)}", "signed    by ann@lab.org: it verifies", first.by):
        assert words in result.out
    assert "signed by ann@lab.org and bob@lab.org" in result.out.splitlines()
    assert approval(world).unsigned == first.unsigned
    assert approval(world).signatures[:1] == first.signatures
    assert signers(approval(world)) == ["ann@lab.org", "bob@lab.org"]


def test_without_a_terminal_a_second_person_names_the_whole_approval(world: World, keys: Path) -> None:
    *_, receipt = world.verified()
    world.run("approve", receipt)
    digest = approval_digest(approval(world))
    result = world.run("cosign", *by(keys, "bob", ""), digest, "--json")
    assert result.code == 0, result
    assert [entry["principal"] for entry in result.json["approval"]["signatures"]] == ["bob@lab.org"]
    assert signers(approval(world)) == ["bob@lab.org"]


def test_one_person_signs_once(world: World, keys: Path) -> None:
    *_, receipt = world.verified()
    world.run("approve", *by(keys, "ann"), receipt)
    assert "ann@lab.org has signed this approval already" in untouched(
        world, f"{SIGNING_KEY}={keys / 'bob'}", f"{SIGNER}=ann@lab.org", types="yes", verb="cosign"
    )
    assert "one key is one person" in untouched(
        world, f"{SIGNING_KEY}={keys / 'ann'}", f"{SIGNER}=bob@lab.org", types="yes", verb="cosign"
    )


def test_nothing_is_added_to_an_approval_that_ends_nothing(world: World, keys: Path) -> None:
    first, _, receipt = world.verified()
    assert "there is no approval" in untouched(world, *by(keys, "bob", ""), types="yes", verb="cosign")
    world.run("approve", *by(keys, "ann"), receipt)
    written = world.file.path.read_text()
    world.file.path.write_text(written.replace(approval(world).by, "eve@lab"))
    assert "edited" in untouched(world, *by(keys, "bob", ""), types="yes", verb="cosign")
    world.file.path.write_text(written)
    first.log("runner-started", pid=1)
    assert "went on after the receipt" in untouched(world, *by(keys, "bob", ""), types="yes", verb="cosign")


def test_an_approval_that_takes_the_place_of_a_signed_one_says_so(world: World, keys: Path) -> None:
    *_, receipt = world.verified()
    world.run("approve", *by(keys, "ann"), receipt, "--box", "box-0")
    result = world.run("approve", receipt, "--box", "box-1")
    assert "this replaces an approval that was signed by ann@lab.org" in result.out
    assert not approval(world).signatures


def test_an_abandonment_on_record_keeps_all_signatures(world: World, keys: Path) -> None:
    """Also beside another box, which it does not let go."""
    first, second, receipt = world.verified()
    world.run("approve", receipt, "--box", "box-1")
    given_up = ["data/box-0", "--reason", "broken"]
    assert world.run("give-up", *by(keys, "ann"), *given_up).code == 0
    untouched(world, *by(keys, "bob", ""), types="yes", verb="cosign")
    result = world.run("cosign", *by(keys, "bob", ""), types="box-0")
    assert result.code == 0, result
    assert "given up  box-0 (destroy): broken" in result.out
    kept = world.store.clearance(first.native_id)
    assert kept == approval(world)
    assert signers(kept) == ["ann@lab.org", "bob@lab.org"]
    assert world.store.clearance(second.native_id) is None
    box = parse_export(STACK, world.export()).boxes[0]
    on_it = next(recorded_approvals(box.context()))
    assert on_it == kept
    assert may_end(BoxEnding(box.context(), on_it, Observation(Existence.EXISTS)), full=True).way == "abandoned"


def test_a_revoked_abandonment_is_not_signed_again(world: World, keys: Path) -> None:
    world.full()
    world.run("give-up", *by(keys, "ann"), "data/box-0", "--reason", "broken")
    written = world.file.path.read_bytes()
    world.run("revoke")
    world.file.path.write_bytes(written)
    assert "revoked" in untouched(world, *by(keys, "bob", ""), types="box-0", verb="cosign")


def test_a_revoked_end_of_a_volume_is_not_signed_again(world: World, keys: Path) -> None:
    keep, file = Keep(world), Target.find("keep").file
    assert keep.run("give-up", "data/abl", "--reason", "x", *by(keys, "ann"), types="abl").code == 0
    written = file.path.read_bytes()
    assert keep.run("revoke").code == 0
    file.path.write_bytes(written)
    refused = keep.run("cosign", *by(keys, "bob", ""), types="abl")
    assert (refused.code, "revoked" in refused.err, file.path.read_bytes()) == (1, True, written)


@pytest.mark.parametrize(
    ("arguments", "yes"),
    [([], "yes"), (["data/abl", "--reason", "not needed"], "abl")],
    ids=["whole", "abandoned"],
)
def test_two_people_sign_for_a_stack_of_volumes(world: World, keys: Path, arguments: list[str], yes: str) -> None:
    keep = Keep(world)
    file = Target.find("keep").file
    assert keep.run("give-up" if arguments else "approve", *arguments, *by(keys, "ann"), types=yes).code == 0
    first = file.approval()
    assert keep.run("cosign", *by(keys, "bob", ""), types="no").code == 1
    assert file.approval() == first
    result = keep.run("cosign", *by(keys, "bob", ""), types=yes)
    assert result.code == 0, result
    assert "signed    by ann@lab.org: it verifies" in result.out
    word = file.approval()
    assert first is not None
    assert word is not None
    assert word.unsigned == first.unsigned
    found = verified_signers(word, SweepName(project="sweepstack", stack="keep", identity=KEEPER), None, at=word.at)
    assert found.principals == ("ann@lab.org", "bob@lab.org")
    world.file.path.with_name("Pulumi.keep.yaml").write_text(file.path.read_text().replace(word.by, "eve@lab"))
    assert "edited" in keep.run("cosign", *by(keys, "locked", ""), types=yes).err


def test_what_another_person_wrote_during_the_prompt_is_not_written_over(
    world: World, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen may stand for an hour: a third signature, or a revocation, that came meanwhile stays."""
    *_, receipt = world.verified()
    world.run("approve", *by(keys, "ann"), receipt)
    shown = approval(world)
    changes = iter((shown.model_copy(update={"signatures": ()}), None))

    def slow(question: str) -> str:
        world.file.write_approval(next(changes))
        return "yes"

    monkeypatch.setattr(approving, "answer", slow)
    for how in ("was changed in", "was taken out of"):
        refused = world.run("cosign", *by(keys, "bob", ""), types="yes")
        assert refused.code == 1, refused
        assert f"the approval {how} " in " ".join(refused.err.split())
    assert world.file.approval() is None
