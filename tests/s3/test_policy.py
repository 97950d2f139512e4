"""A box's own credential, on a real server that enforces it: below its own folder, and nowhere else."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from sweepstack.core.bucket_address import S3Address
from sweepstack.evidence.s3.object_store import box_folder, box_policy
from tests.s3.conftest import BUCKET
from tests.s3.server import S3Server
from tests.unit.evidence.world import World


def test_a_box_writes_below_its_own_folder_only(world: World, server: S3Server) -> None:
    address, native_id = S3Address.parse(world.uri), "pod/1*"
    policy = box_policy(address, native_id)
    for statement in policy["Statement"]:  # as the bucket's own policy, which says whom it is about
        statement["Principal"] = {"AWS": ["box-0"]}
    box = server.sdk(aws_access_key_id="box-0", aws_secret_access_key=server.add_user("box-0"))
    server.sdk().put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))
    own = f"{address.prefix}/{box_folder(native_id)}"
    box.put_object(Bucket=BUCKET, Key=f"{own}/cell/best.pt", Body=b"x", ChecksumAlgorithm="SHA256")
    assert box.get_object(Bucket=BUCKET, Key=f"{own}/cell/best.pt")["Body"].read() == b"x"
    assert box.list_objects_v2(Bucket=BUCKET, Prefix=f"{own}/")["KeyCount"] == 1
    elsewhere = [
        f"{address.prefix}/records/lease.json",
        f"{address.prefix}/receipts/x.json",
        f"{address.prefix}/cells/a/manifest.json",
        f"{address.prefix}/sweep.json",
        f"{address.prefix}/boxes/{box_folder('pod/12').rpartition('/')[2]}/x",
        "another-sweep/x",
    ]
    for key in elsewhere:
        for ask in (
            lambda key=key: box.put_object(Bucket=BUCKET, Key=key, Body=b"x"),
            lambda key=key: box.delete_object(Bucket=BUCKET, Key=key),
            lambda key=key: box.get_object(Bucket=BUCKET, Key=key),
        ):
            with pytest.raises(ClientError) as error:
                ask()
            assert error.value.response["Error"]["Code"] == "AccessDenied"
    for ask in (
        lambda: box.list_objects_v2(Bucket=BUCKET, Prefix=f"{address.prefix}/"),
        lambda: box.delete_object(Bucket=BUCKET, Key=f"{own}/cell/best.pt"),
    ):
        with pytest.raises(ClientError):
            ask()
    assert len(world.store.births()) == 1
