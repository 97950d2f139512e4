"""Which policy binds, what counts as weaker, and what the gate refuses because of it."""

from __future__ import annotations

import json
import lzma
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config.policy import Policy, of_project, parse_policy
from sweepstack.core.policy_text import NONE, PolicyChain, PolicyCopy, PolicyLink, PolicyText, read_copy, written
from sweepstack.core.records import Action, Approval
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.status.engine.state import parse_export
from sweepstack.teardown.box_context import in_entry
from sweepstack.teardown.policy_in_force import (
    FROM,
    PROPOSED,
    TO,
    Change,
    change,
    in_state,
    missing_consent,
    text_for_state,
)
from sweepstack.teardown.policy_strictness import stricter, weaker
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import FIRST, NOW, Situation, abandonment, approval, waiver

ROOT = Path(__file__).resolve().parents[3]
STRICT, WEAK = "max_expiry: 24h\nwaivers: refused\n", "max_expiry: 24h\n"


def source(text: str, signers: str | None = None) -> PolicyText:
    """A policy; with the keys of all, where it names people."""
    named = "approvers" in text or "abandoners" in text
    return PolicyText(text=text, signers=(ANA + BEN + EVE if named else "") if signers is None else signers)


def copy_of(*texts: str, approved: Approval | None = None) -> str:
    """An entry as versions before 0.1 wrote it: all policies up to the last one, which came by this approval."""
    links = [PolicyLink(policy=source(text)) for text in texts]
    links[-1] = links[-1].model_copy(update={"approval": approved})
    return PolicyCopy(chains=(PolicyChain(links=tuple(links)),)).model_dump_json()


def consent(old: str, new: str, identity: str = IDENTITY, **changes: Any) -> Approval:
    """A person's consent that `new` follows `old`."""
    actions = (
        Action(verb=FROM, box=identity, native_id=source(old).digest),
        Action(verb=TO, box=identity, native_id=source(new).digest),
    )
    times = {"at": datetime.now(UTC), "expires": datetime.now(UTC) + timedelta(days=1)}
    return approval(None, actions=actions, **times | changes)


ANA, BEN, EVE = (f"{name} ssh-ed25519 AAAA{name}\n" for name in ("ana", "ben", "eve"))
"""Lines of a list of allowed signers."""
ALL = "[ana, ben, eve]"
ORDER = {
    "approvers": ("approvers: [ana, ben]\nabandoners: ana", "approvers: ana\nabandoners: ana"),
    "abandoners": ("abandoners: [ana, ben]", "abandoners: ben"),
    "abandon_needs": (f"abandoners: {ALL}\nabandon_needs: 2", f"abandoners: {ALL}\nabandon_needs: 3"),
    "max_price_per_hour": ("max_price_per_hour: 4", "max_price_per_hour: 2"),
    "platforms": ("platforms: [local, other]", "platforms: local"),
    "regions": ("regions: [EU-1, EU-2]", "regions: [EU-2]"),
    "evidence": ("evidence: [folder, s3]", "evidence: s3"),
    "max_expiry": ("max_expiry: 1d", "max_expiry: 90m"),
}
"""Key → a value, and a stricter one."""
WORDS = {"budget": "budget: required", "waivers": "waivers: refused"}


def test_every_key_has_its_order() -> None:
    """A key that nothing compares would count as weaker with each change, or never."""
    assert set(ORDER) | set(WORDS) == set(Policy.model_fields)


@pytest.mark.parametrize("key", [*ORDER, *WORDS])
def test_a_key_that_is_left_out_is_weaker(key: str) -> None:
    text = WORDS.get(key) or ORDER[key][1]
    assert key in [line.partition(":")[0] for line in weaker(parse_policy(source(text)), parse_policy(NONE))]
    assert weaker(parse_policy(NONE), parse_policy(source(text))) == []
    assert key in stricter(parse_policy(NONE), parse_policy(source(text)))


@pytest.mark.parametrize("key", ORDER)
def test_a_key_with_a_stricter_value_is_not_weaker_and_back_it_is(key: str) -> None:
    loose, strict = (parse_policy(source(text)) for text in ORDER[key])
    assert weaker(loose, strict) == []
    assert [line.partition(":")[0] for line in weaker(strict, loose)] == [key]
    assert weaker(loose, loose) == []


def test_a_new_line_of_the_allowed_signers_is_weaker_and_one_less_is_not() -> None:
    """A new key under an old name may be another person's."""
    text = "approvers: ana\n"
    before = parse_policy(source(text, ANA + BEN))
    assert weaker(before, parse_policy(source(text, "# of the lab\n" + ANA))) == []
    assert weaker(before, parse_policy(source(text, ANA + BEN + EVE))) == [
        "allowed_signers: a line for eve is new or was changed"
    ]
    assert weaker(before, parse_policy(source(text, ANA.replace("AAAA", "BBBB") + BEN)))


MISTAKES = {
    "no key": ("approvers: eve\n", ANA, "approvers: eve"),
    "no list": ("approvers: ana\n", "", "approvers: ana"),
    "one person": ("approvers: ana\nabandon_needs: 2\n", ANA, "abandon_needs: 2"),
    "one key": ("approvers: [ana, ben]\nabandon_needs: 2\n", ANA + ANA.replace("ana ", "ben "), "abandon_needs: 2"),
    "no people": ("abandon_needs: 2\n", "", "abandon_needs: 2"),
    "a pattern": ('approvers: "*"\n', ANA, "approvers"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_people_who_can_never_sign_are_a_mistake(what: str) -> None:
    text, signers, key = MISTAKES[what]
    with pytest.raises(ConfigError, match=re.escape(key)):
        parse_policy(source(text, signers))
    assert parse_policy(source("approvers: [ana, ben]\nabandon_needs: 2\n", ANA + BEN)).rules.may_abandon == (
        "ana",
        "ben",
    )


def test_neither_of_two_lists_may_be_as_strict_as_the_other() -> None:
    one, other = parse_policy(source("platforms: [local]")), parse_policy(source("platforms: [other]"))
    assert weaker(one, other)
    assert weaker(other, one)


def test_a_mistake_in_the_file_is_named_with_line_and_key() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy(source("waivers: refused\nmax_prise_per_hour: 3\nmax_expiry: soon\n"))
    words = str(caught.value)
    assert "policy.yaml has 2 mistakes" in words
    assert "line 2  max_prise_per_hour" in words
    assert 'did you mean "max_price_per_hour"?' in words
    assert "docs/policy.md#keys" in words


# What the project's file means


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project; the working folder is in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    monkeypatch.chdir(folder)
    return folder


def file(project: Path, text: str | None) -> None:
    path = project / "policy.yaml"
    path.unlink(missing_ok=True) if text is None else path.write_text(text)


def meant(project: Path, situation: Situation, *entries: str | None, given: Approval | None = None) -> Change:
    """What the file means for a sweep whose state has these entries; `given` waits in its evidence."""
    situation.store.write_record(PROPOSED, given)
    return change(project, entries, situation.store, IDENTITY)


def after(project: Path, situation: Situation, *entries: str | None, given: Approval | None = None) -> list[str]:
    return [policy.text for policy in meant(project, situation, *entries, given=given).after]


def test_an_entry_is_read_as_it_was_written() -> None:
    assert in_state([written(source(STRICT))]).policies == (source(STRICT),)
    assert in_state([None]).policies == in_entry(None) == ()
    assert in_state(in_entry(written(source(STRICT)))).policies == (source(STRICT),)
    with pytest.raises(ValueError, match="chains"):
        read_copy('{"chains": 3}')
    assert "can't be read" in in_state(["{"]).problems[0]


def test_the_file_follows_where_it_is_as_strict_and_else_by_approval(project: Path, situation: Situation) -> None:
    held, stricter_one = written(source(STRICT)), STRICT + "budget: required\n"
    file(project, STRICT)
    assert meant(project, situation, held).lost == ()
    assert meant(project, situation, held).notes == []
    for text, how in ((WEAK, "is weaker than the policy in force"), (None, "is missing, and that was not approved")):
        file(project, text)
        assert how in meant(project, situation, held).notes[0]
    assert missing_consent(in_state([held]), NONE, None, IDENTITY) == ["it was not approved"]
    for text, given, follows in (
        (stricter_one, None, [stricter_one]),
        (STRICT, None, [STRICT]),
        (WEAK, None, [STRICT]),
        (None, None, [STRICT]),
        (WEAK, consent(STRICT, WEAK), [WEAK]),
        (None, consent(STRICT, ""), []),
        (WEAK, consent(STRICT, ""), [STRICT]),
        (WEAK, consent(WEAK, STRICT), [STRICT]),
        (WEAK, consent(STRICT, WEAK, "other-sweep"), [STRICT]),
        (WEAK, consent("", WEAK), [STRICT]),
        (WEAK, consent(STRICT, WEAK, expires=datetime.now(UTC)), [STRICT]),
    ):
        file(project, text)
        assert after(project, situation, held, given=given) == follows, (text, given)
        assert after(project, situation, given=given) == ([text] if text else []), "a sweep without one"


def test_each_entry_that_has_a_policy_binds(project: Path, situation: Situation) -> None:
    """A change came through half-way: the consent that let the first entry follow lets the others."""
    entries = written(source(WEAK)), written(source(STRICT))
    file(project, WEAK)
    assert set(after(project, situation, *entries)) == {STRICT, WEAK}
    assert after(project, situation, *entries, given=consent(STRICT, WEAK)) == [WEAK]
    found = meant(project, situation, *entries)
    assert text_for_state(entries[1], found.after) == entries[1], "each keeps its own"


def test_an_entry_that_does_not_read_binds_until_a_person_approves_what_follows(
    project: Path, situation: Situation
) -> None:
    """Any person: it names none. It is on record, and the box is not locked for good."""
    file(project, WEAK)
    found = meant(project, situation, "{")
    assert found.refused
    assert "can't be read" in found.binding[0].problem
    assert "sweepctl policy approve" in found.binding[0].problem
    given = approval(None, actions=consent("", WEAK).actions[1:], expires=datetime.now(UTC) + timedelta(days=1))
    assert after(project, situation, "{", given=given) == [WEAK]
    newer = written(source("max_expiry: 24h\nmax_boxes: 3\n"))
    assert "max_boxes" in meant(project, situation, newer).binding[0].problem
    given = consent("max_expiry: 24h\nmax_boxes: 3\n", WEAK)
    assert after(project, situation, newer, given=given) == [WEAK]


# States of versions before 0.1


def test_the_last_link_of_an_older_state_binds(project: Path, situation: Situation) -> None:
    assert after(project, situation, copy_of(WEAK, STRICT)) == [STRICT]
    assert after(project, situation, copy_of(STRICT, WEAK, approved=consent(STRICT, WEAK))) == [WEAK]
    file(project, STRICT)
    found = meant(project, situation, copy_of(WEAK, STRICT))
    assert text_for_state(copy_of(WEAK, STRICT), found.after) == written(source(STRICT)), "one link from now on"


def test_a_link_that_no_file_said_asks_for_no_consent_of_the_one_who_wrote_it(
    project: Path, situation: Situation
) -> None:
    """A job wrote it on its box, or a person into the evidence, and an `up` carried it into the state."""
    evil = STRICT + "approvers: [ana]\n"
    planted = copy_of(STRICT, evil)
    file(project, STRICT)
    found = meant(project, situation, planted)
    assert [policy.text for policy in found.after] == [evil], "it binds until a person has approved"
    assert found.refused
    assert after(project, situation, planted, given=consent(evil, STRICT)) == [STRICT], "without ana's signature"
    file(project, WEAK)
    assert after(project, situation, planted, given=consent(evil, WEAK)) == [WEAK]
    file(project, evil)
    (project / "allowed_signers").write_text(ANA + BEN)
    assert after(project, situation, planted) == [evil], "a reviewed file says it: now it asks for ana"
    assert after(project, situation, planted, given=consent(evil, WEAK)) == [evil]


def test_the_people_of_what_a_person_said_are_asked_also_to_go_back_to_it(project: Path, situation: Situation) -> None:
    people = "approvers: [ana]\n"
    file(project, people)
    (project / "allowed_signers").write_text(ANA + BEN)
    said, planted = of_project(project), source(people + "waivers: refused\n")
    assert said is not None
    links = (PolicyLink(policy=said), PolicyLink(policy=planted))
    entry = PolicyCopy(chains=(PolicyChain(links=links),)).model_dump_json()
    actions = tuple(
        Action(verb=verb, box=IDENTITY, native_id=one.digest) for verb, one in ((FROM, planted), (TO, said))
    )
    found = meant(project, situation, entry, given=consent(people, people).model_copy(update={"actions": actions}))
    assert found.refused, "ana did not sign it"


@pytest.mark.parametrize(("moment", "text"), [("followed", "budget: required\n"), ("planted", "approvers: [evil@x]\n")])
def test_a_state_that_6f8d950f_left_is_read_and_can_be_left(
    project: Path, situation: Situation, moment: str, text: str
) -> None:
    """The state after an `up` with a stricter file; and after one that took over a link that was written into the
    evidence. Made by that commit with the real engine, and never made again."""
    first = "waivers: refused\nmax_expiry: 72h\n"
    raw = lzma.decompress((ROOT / "tests/golden/policy" / f"{moment}.json.xz").read_bytes())
    state = parse_export("t", json.loads(raw))
    entries = [entry.policy for entry in (*state.identities, *state.boxes, *state.gates, *state.queues)]
    file(project, first)
    found = meant(project, situation, *entries)
    assert [policy.text for policy in found.after] == [first + text, first], "the queue kept the first one"
    assert found.refused
    wanted = found.file
    assert wanted is not None
    actions = tuple(Action(verb=FROM, box=IDENTITY, native_id=policy.digest) for policy in found.held.policies)
    given = consent(first, first).model_copy(
        update={"actions": (*actions, Action(verb=TO, box=IDENTITY, native_id=wanted.digest))}
    )
    assert after(project, situation, *entries, given=given) == [first]


def test_an_entry_that_was_edited_asks_no_less_people(project: Path, situation: Situation) -> None:
    """One entry of an export was edited to what the file says. The entries beside it still ask ana."""
    people = "approvers: [ana]\n"
    (project / "allowed_signers").write_text(ANA + BEN)
    file(project, WEAK)
    for edited in (written(source(WEAK)), copy_of(WEAK, people), copy_of(people, WEAK, approved=consent(people, WEAK))):
        given = consent(people, WEAK)
        assert people in after(project, situation, edited, written(source(people)), given=given), edited
        assert people in after(project, situation, written(source(people)), edited, given=given), edited


def test_a_chain_beside_that_of_the_file_asks_no_person(project: Path, situation: Situation) -> None:
    """A state that was lost could take over a copy that had been begun anew."""
    links = [PolicyChain(links=(PolicyLink(policy=source(text)),)) for text in (STRICT, "approvers: [ana]\n")]
    two = PolicyCopy(chains=tuple(links)).model_dump_json()
    file(project, STRICT)
    assert after(project, situation, two) == [STRICT, "approvers: [ana]\n"]
    assert after(project, situation, two, given=consent("approvers: [ana]\n", STRICT)) == [STRICT]


# Files that are no policy


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to("/not/mounted/policy.yaml"), "a link to /not/mounted/policy.yaml, which is not"),
        (lambda path: path.with_suffix(".yml").write_text("waivers: refused\n"), "policy.yml is not read"),
        (lambda path: path.with_name("Policy.yaml").write_text("waivers: refused\n"), "Policy.yaml is not read"),
        (lambda path: path.with_name("POLICY.YML").write_text("waivers: refused\n"), "POLICY.YML is not read"),
        (lambda path: os.mkfifo(path), "it is a pipe"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
    ids=["dangling-link", "another-name", "another-case", "both", "pipe", "folder"],
)
@pytest.mark.timeout(60)
def test_what_is_no_policy_is_refused_in_words_and_is_not_none(
    project: Path, situation: Situation, make: Any, words: str
) -> None:
    make(project / "policy.yaml")
    with pytest.raises(ConfigError, match=re.escape(words)):
        of_project(project)
    verdict = situation.ask()
    assert not verdict.allowed
    assert words in verdict.reasons[0]
    assert ("mv" if "is not read" in words else "mend policy.yaml") in verdict.reasons[0]


# The gate


def under(situation: Situation, text: str) -> Situation:
    """The same, with a policy in the state."""
    situation.state(policies=(written(source(text)),))
    return situation


def test_a_policy_that_allows_the_approval_changes_nothing(situation: Situation) -> None:
    verdict = under(situation, "max_expiry: 3d\nwaivers: refused\nbudget: required\n").ask()
    assert (verdict.allowed, verdict.way) == (True, "cleared")


def test_waivers_are_refused_by_the_state_and_by_the_file_with_file_and_line(
    situation: Situation, project: Path
) -> None:
    situation.approve(waive=(waiver(FIRST),))
    assert situation.ask().allowed
    text = STRICT.replace("24h", "3d")
    under(situation, text)
    verdict = situation.ask()
    short = source(text).short
    assert verdict.reasons == [
        f"the policy refuses waivers (the engine's state: policy {short}, line 2): {FIRST}",
        *verdict.reasons[1:],
    ]
    assert not verdict.approved
    file(project, text)
    assert situation.ask().reasons[0] == f"the policy refuses waivers (policy.yaml line 2): {FIRST}"
    situation.state(policies=())
    assert situation.ask().reasons[0] == f"the policy refuses waivers (policy.yaml line 2): {FIRST}"


def test_a_state_that_was_edited_does_not_loosen_what_the_file_says(situation: Situation, project: Path) -> None:
    situation.approve(waive=(waiver(FIRST),))
    file(project, STRICT.replace("24h", "3d"))
    for edited in (written(source("max_expiry: 3d\n")), "{", '{"chains": []}', None):
        situation.state(policies=(edited,) if edited is not None else ())
        assert not situation.ask().allowed, edited


def test_an_approval_may_not_hold_longer_than_the_policy_says(situation: Situation) -> None:
    verdict = under(situation, "max_expiry: 24h\n").ask()
    assert not verdict.allowed
    assert verdict.reasons[0].startswith("the approval may hold for 24h at most (the engine's state: policy")
    situation.approve(expires=NOW + timedelta(hours=22))
    assert situation.ask().allowed
    situation.approve(at=NOW + timedelta(hours=40), expires=NOW + timedelta(hours=50))  # a date in the future
    assert not situation.ask().allowed


def test_the_rules_of_an_approval_hold_for_an_abandonment_too(situation: Situation) -> None:
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert situation.ask().way == "abandoned"
    verdict = under(situation, "max_expiry: 24h\n").ask()
    assert not verdict.allowed


def test_what_does_not_read_locks_and_names_two_ways_out(situation: Situation) -> None:
    situation.approve(receipt=None, abandon=(abandonment(),))
    for entry, words in (("{", "can't be read"), (written(source("max_boxes: 3\n")), "max_boxes")):
        situation.state(policies=(entry,))
        verdict = situation.ask()
        assert not verdict.allowed
        assert words in verdict.reasons[0]
        assert "git pull" in verdict.reasons[0]
        assert "sweepctl policy approve" in verdict.reasons[0]


def test_a_birth_record_that_names_a_policy_asks_for_its_text(situation: Situation, project: Path) -> None:
    """The entry was edited, or the state is new, and the file is not here."""
    named = source("max_expiry: 3d\n")
    birth = situation.store.birth(situation.facts.name, situation.facts.generation)
    assert birth is not None
    situation.store.write_birth(birth.model_copy(update={"policy": named.digest}))
    verdict = situation.ask()
    assert not verdict.allowed
    said = f"records/births/box-0-g1.json of the evidence names the policy {named.short}, and no text of it is here"
    assert said in verdict.reasons[0]
    assert (situation.evidence / "records/births/box-0-g1.json").is_file()
    assert "git log -- policy.yaml" in verdict.reasons[0]
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert not situation.ask().allowed, "an abandonment, too"
    file(project, named.text)
    assert situation.ask().way == "abandoned"
    file(project, None)
    assert under(situation, named.text).ask().way == "abandoned"


def test_what_is_gone_needs_no_policy(situation: Situation) -> None:
    from sweepstack.core.observation import Existence

    under(situation, "max_expiry: 1h\n")
    situation.existence = Existence.GONE
    assert situation.ask().way == "gone"


@pytest.mark.parametrize("key", sorted(Policy.model_fields))
def test_a_key_without_a_value_is_a_mistake_and_not_a_rule_that_allows_all(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} +no value, and without one it allows all"):
        parse_policy(source(f"{key}:\n", ANA + BEN))


def test_an_unknown_key_is_answered_with_the_keys_of_the_file() -> None:
    with pytest.raises(ConfigError, match=re.escape("keys of policy.yaml: approvers, abandoners")):
        parse_policy(source("max_boxes: 3\n"))


def test_the_only_key_that_begins_so_is_meant() -> None:
    with pytest.raises(ConfigError, match=re.escape('did you mean "max_price_per_hour"?')):
        parse_policy(source("max_pric: 3\n"))


def test_a_wrong_value_of_a_list_with_one_entry_is_shown_whole() -> None:
    with pytest.raises(ConfigError, match=re.escape('evidence[0]: "gcs"')):
        parse_policy(source("evidence: gcs\n"))
