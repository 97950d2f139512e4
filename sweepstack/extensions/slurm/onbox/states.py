"""What a state or a reason of Slurm means for a sweep, and what to do about it."""

from __future__ import annotations

REMEDIES: dict[str, str] = {
    "OUT_OF_MEMORY": "it used more memory than it asked for: {memory}, or run fewer cells at once (job.slots)",
    "TIMEOUT": (
        "it ran into its time limit before its cells had saved: raise resources.time, or let the job save more often; "
        "cells that use the checkpoint helper go on from their last checkpoint"
    ),
    "PREEMPTED": (
        "a job of a higher priority took its place: its cells go on from their checkpoints when it runs again. A QOS "
        "or partition that is not preempted costs more of your share"
    ),
    "NODE_FAIL": (
        "its node failed: `pulumi up` brings another worker. A cell that ran there is free once the node answers "
        "again, or once a person has seen that it is off (sweepctl confirm worker)"
    ),
    "BOOT_FAIL": "its node did not start: `pulumi up` brings another worker; tell the site if that repeats",
    "DEADLINE": "it could not end before its deadline any more: raise resources.time",
    "CANCELLED": "it was cancelled with scancel: `pulumi up` brings another worker",
    "FAILED": (
        "its worker ended with an error, or was killed (0:9 is SIGKILL, mostly for memory): see the worker's log, "
        "data/sweep/jobs/{task}.log on the box"
    ),
}
"""State of a task that ended → what a person can do. `{task}`: its name; `{memory}`: one of the next two."""
MEMORY = "set `{line}` (1.2 times what it had when it was killed; it may need more)"
_MEMORY_UNKNOWN = (
    "raise resources.memory to 1.2 times what it used at most (`sacct -j {task} -o MaxRSS`, if the site keeps that)"
)
REASONS: dict[str, str] = {
    "Resources": "waits for free nodes",
    "Priority": "jobs with a higher priority are before it",
    "Dependency": "waits for another job",
    "BeginTime": "was requeued a moment ago and waits for its begin, two minutes at most; `pulumi up` shortens that",
    "JobArrayTaskLimit": "waits for a task of its own array, which limits how many run at once",
    "ReqNodeNotAvail": "the nodes that it may use are down, drained or reserved: `sinfo -R` says why",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is closed",
    "PartitionTimeLimit": "never starts: it asks for more time than the partition gives; lower resources.time",
    "PartitionNodeLimit": "never starts: it asks for more nodes than the partition gives",
    "BadConstraints": "never starts: no node has what it asks for; change resources.constraint, gres, gpu or memory",
    "InvalidAccount": "never starts: the account is not yours there; change resources.account",
    "InvalidQOS": "never starts: the QOS is not yours there; change resources.qos",
    "JobHeldUser": "is held by you: `scontrol release {task}`",
    "JobHeldAdmin": "is held by an administrator: ask them",
    "job requeued in held state": "was requeued and is held, by a person or a rule: `scontrol release {task}`",
    "job requeued in special exit state": "is held for its exit code, by a rule of the site: `scontrol release {task}`",
    "launch failed requeued held": "its node could not start it, so Slurm holds it: `scontrol release {task}`, or ask",
    "JobHoldMaxRequeue": "was requeued as often as the site allows, and is held: `scontrol release {task}`",
    "DependencyNeverSatisfied": "never starts: a job that it waits for has failed; cancel it: `scancel {task}`",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
}
"""Reason why a task waits → what that means. Others that begin as in `_BEGINNINGS` are limits of the site."""
_BY_SLURM = frozenset(["launch failed requeued held", "JobHoldMaxRequeue"])
"""Reasons of a task that Slurm itself holds, after a launch that failed. A `scontrol hold` that comes later leaves that
reason as it is (seen on 22.05)."""
_BY_A_PERSON = frozenset(
    ["JobHeldUser", "JobHeldAdmin", "job requeued in held state", "job requeued in special exit state"]
)
"""Reasons of a task that its user or an administrator holds (`scontrol hold`, `sbatch --hold`, `scontrol
requeuehold`), or a rule that they wrote."""
_HELD_STATES = frozenset(["REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"])
_NEVER = "never starts"
_FULL = "submitjob"
_LIMITS = (_FULL, "submit limit", "maxsubmit", "job submit")
_BEGINNINGS = {
    "QOS": "a limit of the QOS holds it back",
    "Assoc": "a limit of the account holds it back",
    "MaxJobs": "a limit of the site holds it back",
    "Nodes_required": "the nodes that it may use are down, drained or reserved: `sinfo -R` says why",
    "Nodes required": "`sinfo -R` says why",
}


def is_held(state: str, reason: str) -> bool:
    """Whether a task that waits is held: Slurm starts it once it is released."""
    return state in _HELD_STATES or _word(reason) in _BY_SLURM | _BY_A_PERSON


def is_held_by_slurm(reason: str) -> bool:
    """Whether Slurm itself holds a task that waits. Every other hold counts as that of a person."""
    return _word(reason) in _BY_SLURM


def is_stuck(state: str, reason: str) -> bool:
    """Whether a task that waits does not begin by itself: it is held, or asks for what it never gets."""
    return is_held(state, reason) or REASONS.get(_word(reason), "").startswith(_NEVER)


def may_be_too_many(said: str) -> bool:
    """Whether sbatch may have refused an array for the number of its tasks alone: fewer may do."""
    return any(word in said.lower() for word in _LIMITS)


def is_full(said: str) -> bool:
    """Whether sbatch says that no more jobs may be submitted now (`QOSMaxSubmitJobPerUserLimit` and its like), and not
    only that some limit is in the way."""
    return _FULL in said.lower()


def _word(reason: str) -> str:
    """A reason as `REASONS` spells it."""
    word = reason.strip("()")
    return next((one for one in (word, word.replace("_", " "), word.split(",")[0]) if one in REASONS), word)


def remedy(state: str, task: str, line: str = "") -> str:
    """What to do about a task that ended so; "" where there is nothing to do, or nothing is known. `line`: of the stack
    config, that gives enough memory (`accounting.enough`)."""
    return REMEDIES.get(state, "").format(
        task=task, memory=(MEMORY if line else _MEMORY_UNKNOWN).format(task=task, line=line)
    )


def reason(text: str, task: str) -> str:
    """Why it waits: Slurm's own word, and what that means where it is known."""
    word = text.strip("()")
    means = REASONS.get(_word(text))
    if means is None:
        means = next((words for begin, words in _BEGINNINGS.items() if word.startswith(begin)), "")
    return f"{word}: {means.format(task=task)}" if means else word
