"""The mutants: each breaks one promise with a few characters, and names the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patch:
    """`old` occurs exactly once in `path` and becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A broken promise. Every one of `caught_by` must fail on it."""

    name: str
    patches: tuple[Patch, ...]
    caught_by: tuple[str, ...]


MUTANTS = (
    Mutant(
        "skip the receipt's digest",
        (Patch("sweep/evidence/store.py", "if DIGEST_PREFIX + sha256_hex(data) != digest:", "if False:"),),
        ("tests/engine/test_approvals.py::test_receipt_edited",),
    ),
    Mutant(
        "skip the files' digests",
        (Patch("sweep/evidence/files.py", "file_sha256(root / file.path) != file.sha256", "False"),),
        ("tests/engine/test_approvals.py::test_copy_damaged_with_its_old_size_and_time",),
    ),
    Mutant(
        "trust the clearance flag in the state",
        (
            Patch(
                "provider/resources/ending.py",
                "    if not judgement.verdict.allowed:\n        raise TeardownRefused",
                '    flag = getattr(state, "clearance", "cleared")\n'
                '    if not judgement.verdict.allowed and not flag.startswith("cleared"):\n'
                "        raise TeardownRefused",
            ),
        ),
        ("tests/engine/test_by_state.py::test_state_edited_to_cleared",),
    ),
    Mutant(
        "ignore the expiry",
        (Patch("sweep/teardown.py", "    if now < approval.expires:\n", "    if True:\n"),),
        ("tests/engine/test_approvals.py::test_approval_expired",),
    ),
    Mutant(
        "gone on any error",
        (
            Patch(
                "provider/platforms/observe.py",
                "        return Observation(Existence.UNKNOWN, note=str(error)), None",
                "        return Observation(Existence.GONE), None",
            ),
        ),
        ("tests/engine/test_vanished.py::test_unreachable_is_not_gone",),
    ),
    Mutant(
        "seal before the copy is read back",
        (
            Patch(
                "scripts/onbox/runner_sealing.py",
                'if read_back(partial / file["path"]) != file["sha256"]:',
                "if False:",
            ),
        ),
        ("tests/onbox/test_killed.py::test_copy_that_reads_back_differently_is_not_sealed[change0]",),
    ),
    Mutant(
        "adopt by name alone",
        (
            Patch(
                "provider/platforms/local.py",
                'if record.tag in (tag, "")]',
                'if record.tag.split("-")[-3:-1] == tag.split("-")[-3:-1] or not record.tag]',
            ),
        ),
        ("tests/engine/test_crash.py::test_two_sweeps_with_the_same_box_names",),
    ),
)
