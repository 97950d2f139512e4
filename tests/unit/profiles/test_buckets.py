"""Buckets in a stack config: what a box is told, and what is refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.box import job_input
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.job import JobInput
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, write

SECRETS = "      secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]\n"


def with_mounts(root: Path, mounts: str, secrets: str = SECRETS) -> Plan:
    text = GOOD.replace("    max_price: 2.10\n", f"    mounts: {mounts}\n").replace(
        "    cells:", f"{secrets}    cells:"
    )
    text = text.replace('        gpu: {name: [A100, H100], count: 1, memory: 40GB+, cuda: "12.4+"}\n', "")
    write(root, text)
    return resolve(StackConfig.load(root, "x"), {"local": load_profile("local")})


def test_a_box_is_told_of_its_buckets(tmp_path: Path) -> None:
    server = "https://minio.lab:9000/"
    found = with_mounts(
        tmp_path,
        f'{{/data/images: {{source: "s3://lab/in/", mode: COPY}}, '
        f'/ckpt: {{source: "s3://lab/abl", mode: MOUNT_CACHED, endpoint: "{server}"}}, '
        "/keep: {source: abl-store}}",
    )
    told = job_input(found.job, found.boxes[0], "sha256:" + "0" * 64)
    assert told["mounts"] == [
        {"path": "/ckpt", "source": "s3://lab/abl", "mode": "MOUNT_CACHED", "endpoint": "https://minio.lab:9000"},
        {"path": "/data/images", "source": "s3://lab/in", "mode": "COPY"},
    ]
    assert JobInput.model_validate(told).mounts is not None
    assert found.durable is not None
    assert (found.durable.volume, found.durable.path) == ("abl-store", "/keep"), "a volume is what it was"


def test_without_buckets_nothing_is_told(tmp_path: Path) -> None:
    found = with_mounts(tmp_path, "{/keep: {source: abl-store}}")
    assert "mounts" not in job_input(found.job, found.boxes[0], "sha256:" + "0" * 64)


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ("{/d: {source: abl-store, mode: COPY}}", "expected mode: MOUNT for a volume; COPY is for a bucket"),
        ('{/d: {source: abl-store, endpoint: "http://m"}}', "expected no endpoint for a volume"),
        ("{/a: {source: one}, /b: {source: two}}", "expected one volume: a box takes only one"),
        (
            '{/a: {source: "s3://lab/a", mode: MOUNT_CACHED}, /b: {source: "s3://lab/b", mode: MOUNT_CACHED}}',
            "expected one MOUNT_CACHED: a box has only one durable tier",
        ),
        ('{/d: {source: "s3://lab"}}', "names no folder in the bucket; write s3://lab/<prefix>"),
        ('{/d: {source: "gs://lab/x"}}', "expected the name of a volume, or s3://bucket/prefix"),
        *(
            (f'{{/d: {{source: "s3://lab/a", endpoint: "{url}"}}}}', "expected the URL of an S3 server, without keys")
            for url in ("http://me:key@m", "http://m#a", "http://m?a", "http://m:99999", "ftp://m")
        ),
        ('{/durable: {source: "s3://lab/a"}}', "lie in each other's way on a box"),
        ('{/a/b: {source: "s3://lab/a"}, /a-b: {source: "s3://lab/b"}}', "lie in each other's way on a box"),
    ],
)
def test_a_mistake_is_said_before_anything_is_made(tmp_path: Path, mounts: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_mounts(tmp_path, mounts)
    assert said in str(caught.value)


def test_keys_for_a_bucket_are_named_and_never_yours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"secrets: \[AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY\], and export keys"):
        with_mounts(tmp_path, '{/d: {source: "s3://lab/a"}}', secrets="")
