"""Signed approvals at the gate: each signature is good, or it refuses the end by name. ssh-keygen makes and checks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.records import Abandonment, Approval
from sweepstack.core.signature import Signature, SweepName
from sweepstack.extensions.signing import sshsig
from sweepstack.onbox.common.errors import NotAuthorized
from sweepstack.provider.resources.want_gone import for_this_change
from sweepstack.teardown.revocation import approval_digest
from sweepstack.teardown.signatures import NAMESPACE, signed_document, signed_words, verified_signers
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import NOW, Situation


@dataclass(frozen=True)
class Person:
    """A person with an ed25519 key of ssh-keygen."""

    name: str
    key: Path

    @property
    def line(self) -> str:
        """The line of an allowed_signers file."""
        return f"{self.name} {' '.join(Path(f'{self.key}.pub').read_text().split()[:2])}\n"

    def sign(self, approval: Approval, sweep: SweepName, name: str = "", namespace: str = NAMESPACE) -> Signature:
        who = name or self.name
        return Signature(
            principal=who,
            sweep=sweep,
            signature=sshsig.sign(signed_document(approval, who, sweep), str(self.key), namespace),
        )


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Person, Person]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "bob"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=300)
    return Person("ann@lab.org", folder / "ann"), Person("bob@lab.org", folder / "bob")


@pytest.fixture
def ann(people: tuple[Person, Person]) -> Person:
    return people[0]


@pytest.fixture
def bob(people: tuple[Person, Person]) -> Person:
    return people[1]


def sweep_name(situation: Situation) -> SweepName:
    marker = situation.store.marker
    return SweepName(project=marker.project, stack=marker.stack, identity=IDENTITY)


def given(situation: Situation) -> Approval:
    assert situation.approval is not None
    return situation.approval


def signed(situation: Situation, *people: Person, sweep: SweepName | None = None) -> Approval:
    approval, sweep = given(situation), sweep or sweep_name(situation)
    return approval.model_copy(update={"signatures": tuple(one.sign(approval, sweep) for one in people)})


def why(situation: Situation, approval: Approval, signers: str, at: object = NOW) -> str:
    found = verified_signers(approval, sweep_name(situation), signers, at=NOW if at is NOW else at)  # type: ignore[arg-type]
    return "; ".join(found.problems)


def test_good_signatures(situation: Situation, ann: Person, bob: Person) -> None:
    approval = signed(situation, ann, bob)
    found = verified_signers(approval, sweep_name(situation), ann.line + bob.line, at=NOW)
    assert found.principals == (ann.name, bob.name)
    assert not found.problems
    situation.approval = approval
    assert situation.ask().way == "cleared"
    assert signed_words(approval) == "signed by ann@lab.org and bob@lab.org"


def test_what_is_written_and_read_again_still_verifies(situation: Situation, ann: Person, tmp_path: Path) -> None:
    approval = signed(situation, ann)
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    file = tmp_path / "Pulumi.s.yaml"
    file.write_text("config:\n  sweepstack:sweep:\n    pull_to: here\n")
    StackFile(file, file.name).write_approval(approval)
    read = StackFile(file, file.name).approval()
    assert read == approval
    assert Approval.model_validate_json(approval.model_dump_json()) == approval
    assert not why(situation, read, ann.line)


def test_the_digest_of_an_approval_without_signatures_is_what_it_was(situation: Situation, ann: Person) -> None:
    approval = given(situation)
    assert not {"signatures", "until"} & set(approval.model_dump(mode="json"))
    assert approval_digest(signed(situation, ann)) == approval_digest(approval)


@pytest.mark.parametrize("what", ["expires", "actions", "receipt", "abandon", "by", "at"])
def test_an_edited_approval_is_refused(situation: Situation, ann: Person, what: str) -> None:
    approval = signed(situation, ann)
    box = approval.actions[0]
    changed = {
        "expires": approval.expires + timedelta(seconds=1),
        "actions": tuple(action.model_copy(update={"box": "box-7"}) for action in approval.actions),
        "receipt": "sha256:" + "0" * 64,
        "abandon": (Abandonment(box=box.box, native_id=box.native_id, reason="edited in"),),
        "by": "mallory@lab",
        "at": approval.at - timedelta(days=1),
    }[what]
    edited = approval.model_copy(update={what: changed})
    assert why(situation, edited, ann.line) == (
        "the signature of ann@lab.org under the approval does not count: it is forged, or what was signed was edited "
        "afterwards"
    )


def test_the_gate_refuses_an_edit_by_name_and_without_any_list(situation: Situation, ann: Person) -> None:
    approval = signed(situation, ann)
    situation.approval = approval.model_copy(update={"expires": approval.expires + timedelta(days=1)})
    verdict = situation.ask()
    assert not verdict.allowed
    assert "the signature of ann@lab.org" in verdict.reasons[0]


def test_a_signature_of_another_sweep_or_of_a_renamed_stack_is_refused(situation: Situation, ann: Person) -> None:
    here = sweep_name(situation)
    for other in (here.model_copy(update={"identity": "zzzzzzzzzz"}), here.model_copy(update={"stack": "other"})):
        situation.approval = signed(situation, ann, sweep=other)
        assert f"it was given for {other}, and this is {here}" in situation.ask().reasons[0]
        relabelled = tuple(one.model_copy(update={"sweep": here}) for one in given(situation).signatures)
        situation.approval = given(situation).model_copy(update={"signatures": relabelled})
        assert "it is forged" in situation.ask().reasons[0]
        situation.approval = given(situation).model_copy(update={"signatures": ()})
    situation.approval = signed(situation, ann)
    assert situation.ask().allowed
    situation.facts = replace(situation.facts, urn=f"urn:pulumi:renamed::{here.project}::sweepstack:index:Box::box-0")
    assert "and this is " + f"{here.project}/renamed" in situation.ask().reasons[0]


def test_a_signature_of_another_approval_is_refused(situation: Situation, ann: Person) -> None:
    earlier = signed(situation, ann)
    later = given(situation).model_copy(update={"at": given(situation).at + timedelta(minutes=1)})
    assert "edited afterwards" in why(situation, later.model_copy(update={"signatures": earlier.signatures}), ann.line)


def test_who_is_not_in_the_list_is_refused(situation: Situation, ann: Person, bob: Person) -> None:
    approval = signed(situation, ann)
    assert "its key is not in the list of signers for that name" in why(situation, approval, bob.line)
    assert "its key is not in the list" in why(situation, approval, "")
    assert "its key is not in the list" in why(situation, approval, bob.line.replace("bob", "ann"))


def test_the_times_and_purposes_of_the_list_count(situation: Situation, ann: Person) -> None:
    approval, (who, *key) = signed(situation, ann), ann.line.split()
    for option, words in (
        (f'valid-before="{NOW - timedelta(minutes=2):%Y%m%d%H%M}"', "does not accept its key any more"),
        (f'valid-after="{NOW + timedelta(minutes=2):%Y%m%d%H%M}"', "does not accept its key yet"),
        ('namespaces="git"', 'does not let its key sign for "sweepstack-approval@v1"'),
    ):
        assert words in why(situation, approval, f"{who} {option} {' '.join(key)}\n")
    held = f'{who} valid-before="{NOW:%Y%m%d%H%M}Z",namespaces="sweepstack-*" {" ".join(key)}\n'
    assert not why(situation, approval, held)


def test_a_signature_for_another_purpose_is_refused(situation: Situation, ann: Person) -> None:
    approval = given(situation)
    one = ann.sign(approval, sweep_name(situation), namespace="git")
    assert "it was made for another purpose" in why(
        situation, approval.model_copy(update={"signatures": (one,)}), ann.line
    )


def test_one_key_is_one_person(situation: Situation, ann: Person) -> None:
    """A pattern in the list lets one key sign for many names."""
    approval, sweep = given(situation), sweep_name(situation)
    both = (ann.sign(approval, sweep), ann.sign(approval, sweep, name="bob@lab.org"))
    approval = approval.model_copy(update={"signatures": both})
    found = verified_signers(approval, sweep, ann.line.replace("ann@", "*@"), at=NOW)
    assert found.principals == (ann.name,)
    assert "the same key as that of ann@lab.org" in found.refused["bob@lab.org"]
    renamed = both[0].model_copy(update={"principal": "bob@lab.org"})
    assert "it is forged" in why(
        situation, approval.model_copy(update={"signatures": (renamed,)}), ann.line.replace("ann@", "*@")
    )


def test_text_that_is_no_signature(situation: Situation, ann: Person) -> None:
    one = signed(situation, ann).signatures[0].model_copy(update={"signature": "hello"})
    assert "it is no signature" in why(situation, given(situation).model_copy(update={"signatures": (one,)}), ann.line)


def test_without_ssh_keygen_nothing_signed_counts(
    situation: Situation, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation.approval = signed(situation, ann)
    sshsig.fingerprint.cache_clear()  # one that was checked in this process before is good, whatever is here now
    monkeypatch.setenv("PATH", "/nowhere")
    verdict = situation.ask()
    assert not verdict.allowed
    assert "there is no `ssh-keygen` here" in verdict.reasons[0]


def test_a_clearance_of_a_signed_approval_keeps_what_was_signed(situation: Situation, ann: Person) -> None:
    approval = signed(situation, ann)
    kept = for_this_change(approval)
    assert kept.ends < approval.expires or kept.ends == approval.expires
    assert kept.until is not None
    assert not why(situation, kept, ann.line)
    situation.approval, situation.now = kept.model_copy(update={"until": NOW - timedelta(minutes=1)}), NOW
    assert "the approval expired" in situation.ask().reasons[0]


@pytest.fixture
def agent(ann: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real ssh-agent that holds ann's key; the folder has its public half alone."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it says so once it listens
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", str(ann.key)], check=True, timeout=300, env=dict(os.environ))
        yield Path(shutil.copy(f"{ann.key}.pub", tmp_path / "held.pub"))
    finally:
        process.terminate()
        process.wait(timeout=300)


def test_a_key_of_an_agent_signs(situation: Situation, ann: Person, agent: Path) -> None:
    for key in (str(agent), agent.read_text(), "key::" + agent.read_text().strip()):
        approval, sweep = given(situation), sweep_name(situation)
        text = sshsig.sign(signed_document(approval, ann.name, sweep), key, NAMESPACE)
        one = Signature(principal=ann.name, sweep=sweep, signature=text)
        assert not why(situation, approval.model_copy(update={"signatures": (one,)}), ann.line)


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotAuthorized, match="there is no key"):
        sshsig.sign(b"{}", str(tmp_path / "none"), NAMESPACE)
