"""Buckets that boxes see: what a box is told of them, and what they need. Pure."""

from __future__ import annotations

from sweepstack.config.stack_config import StackConfig

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""What rclone on the box takes its keys from."""
RESERVED = "durable"


def buckets(config: StackConfig) -> tuple[dict[str, str], ...]:
    """The buckets of the config, by path."""
    found = []
    for path, mount in sorted(config.bucket_mounts.items()):
        server = {"endpoint": mount.endpoint} if mount.endpoint else {}
        found.append({"path": path, "source": mount.source, "mode": mount.mode, **server})
    return tuple(found)


def bucket_problems(config: StackConfig) -> list[str]:
    """What keeps a box from using them. Platform keys never reach a box, so its own are the job's to name."""
    if not config.bucket_mounts:
        return []
    problems = []
    missing = [key for key in KEYS if key not in config.job.secrets]
    if missing:
        named = ", ".join([*config.job.secrets, *missing])
        problems.append(
            f"mounts: a bucket needs keys on the box, and yours don't go there: write job.secrets: [{named}], and "
            "export keys that reach that prefix alone where you run pulumi"
        )
    slugs = [path.strip("/").replace("/", "-") for path in config.mounts]
    if len(set(slugs)) != len(slugs) or RESERVED in slugs:
        problems.append("mounts: these paths lie in each other's way on a box (mnt/<path>, and mnt/durable is ours)")
    return problems
