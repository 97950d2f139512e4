"""Golden reviews: what a review of each kind of change says, made of documents that the real engine printed.

They are read for clarity by a person. After a change of the words, `python -m tests.unit.review.record words` writes
them anew, and the diff is the review of that change.
"""

from __future__ import annotations

import json

import pytest

from sweepstack.review.markdown import MOST, markdown
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, Review
from tests.unit.review.pictures import as_document, of_document
from tests.unit.review.record import GOLDEN, recorded

REVIEWS = dict(recorded())
MAY = {"add-cells", "approve", "destroy-all-verified", "drop", "grow", "new", "nothing", "shrink-cleared", "stop"} | {
    "swap-cleared",
    "vanished",
    *("settings", "smoke", "new-code", "retry", "policy-stricter"),
}
ENDS = {
    "destroy-abandoned": 2,
    "destroy-all-verified": 2,
    "destroy-approved-not-up": 2,
    "destroy-expired": 2,
    "destroy-none-verified": 2,
    "destroy-some-verified": 2,
    "destroy-verified-not-approved": 2,
    "shrink-cleared": 1,
    "shrink-locked": 1,
    "swap-cleared": 1,
    "volume-removed": 1,
    "volumes-destroyed": 2,
    "volumes-destroyed-approved": 2,
}
REFUSED = {"change-started-cell", "move-platform", "policy-broken", "policy-file-broken", "swap-locked", "take-out"}


@pytest.mark.parametrize("name", sorted(REVIEWS))
def test_golden_review(name: str) -> None:
    """Word for word; and what it says of an end, and of going on, is what this change is."""
    review: Review = REVIEWS[name]
    text = markdown(review)
    assert text == (GOLDEN / f"{name}.md").read_text(), "python -m tests.unit.review.record words"
    assert review.code == (MAY_GO_ON if name in MAY else MAY_NOT)
    assert len(review.ended) == ENDS.get(name, 0)
    assert bool(review.refusals) is (name in REFUSED)
    assert (review.digest is None) is (name in REFUSED)
    first = "\n".join(text.splitlines()[1:6])
    assert ("DESTROYS" in first) is (name in ENDS)
    assert len(text) < MOST


def test_every_kind_of_change_is_there() -> None:
    assert set(ENDS) | REFUSED | MAY == set(REVIEWS)


def test_each_change_has_a_digest_of_its_own() -> None:
    """What is not cleared does not end, so destroys that are locked are one change; each way of an end is another."""
    found: dict[str, list[str]] = {}
    for name, review in REVIEWS.items():
        if review.digest is not None:
            found.setdefault(review.digest, []).append(name)
    assert sorted(names for names in found.values() if len(names) > 1) == [
        ["destroy-approved-not-up", "destroy-expired", "destroy-some-verified", "destroy-verified-not-approved"],
        ["volumes-destroyed-approved", "volumes-destroyed"],  # approved, and not up
    ]


def test_what_dies_is_told_with_its_copies() -> None:
    """Of the sweep with a damaged copy, that cell alone has no verified one."""
    review = REVIEWS["destroy-some-verified"]
    assert [(cell.name, cell.state) for one in review.endings for cell in one.lost] == [("seed3", "damaged")]
    assert review.live.view.verified == 3


@pytest.mark.parametrize("name", sorted(REVIEWS))
def test_a_picture_is_recorded_as_it_is_read(name: str) -> None:
    told = json.loads((GOLDEN / f"{name}.json").read_text())["live"]
    again = of_document(json.loads(json.dumps(as_document(of_document(told)))))
    assert again == of_document(told)
