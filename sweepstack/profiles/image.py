"""Tells how to pin a container image that is named by a tag: a tag can become another image."""

from __future__ import annotations

from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.canonical import DIGEST_PREFIX
from sweepstack.profiles.model import Profile

DIGEST = f"@{DIGEST_PREFIX}"


def image_words(config: StackConfig, profile: Profile) -> tuple[str, ...]:
    """That the image is not pinned, and how to pin it; empty where it is, or is not used."""
    image = config.job.image
    if not image or not profile.uses_image or DIGEST in image:
        return ()
    name = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return (
        f"job.image: {image} is a tag, which may be another image for a box that is rented later. Pin it: "
        f"docker buildx imagetools inspect {name} shows the digest, and job.image is {name}{DIGEST}…",
    )
