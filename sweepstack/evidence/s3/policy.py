"""What the credential of one box may do in the bucket: write below its own folder, and nothing else.

Records and receipts lie elsewhere, so that nothing a box does can make itself look verified. On a platform whose boxes
are folders of this machine no box gets a credential.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from sweepstack.core.bucket_address import S3Address

BOXES = "boxes"


def box_folder(native_id: str) -> str:
    """The one folder of a box, as a key. A native id's own special characters, wildcards among them, are quoted."""
    return f"{BOXES}/{quote(native_id, safe='')}"


def box_policy(address: S3Address, native_id: str) -> dict[str, Any]:
    """The policy document (AWS IAM, MinIO and others) for the credential of one box. Tested as the bucket's own policy,
    on VersityGW; as the session policy of `sts:AssumeRole` it is not."""
    bucket = f"arn:aws:s3:::{address.bucket}"
    folder = f"{address.prefix}/{box_folder(native_id)}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"],
                "Resource": [f"{bucket}/{folder}/*"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [bucket],
                "Condition": {"StringLike": {"s3:prefix": [f"{folder}/*"]}},
            },
        ],
    }
