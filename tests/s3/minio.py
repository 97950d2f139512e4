"""A real S3 server of our own: MinIO, built by set-up, on a free port of this machine."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.minio import binary
from scripts.lib.places import Places

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = binary(Places.of(ROOT, dict(os.environ)))
START_SECONDS = 60


class Minio:
    """One server with a folder of its own. Stopped, it starts again on the same port with the same objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.access, self.secret = "sweeper", secrets.token_hex(12)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        if not PROGRAM.is_file():
            pytest.fail(f"{PROGRAM} is not there: `make test` builds it, or scripts/setup --dev --s3")
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        environment = {"MINIO_ROOT_USER": self.access, "MINIO_ROOT_PASSWORD": self.secret, "MINIO_BROWSER": "off"}
        with (self.folder / "minio.log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", self.folder / "data"],
                env={"PATH": os.defpath, "HOME": str(self.folder), "MINIO_UPDATE": "off", **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/minio/health/ready", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        pytest.fail(f"MinIO did not start: {(self.folder / 'minio.log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Ends it at once, as a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def environment(self) -> dict[str, str]:
        """What a shell has that may use it; other AWS settings of this machine are kept out."""
        return {
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": str(self.folder / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def sdk(self, service: str = "s3", **settings: Any) -> Any:
        """A client of its own, to look and to do damage with."""
        import boto3

        known = {"aws_access_key_id": self.access, "aws_secret_access_key": self.secret, "endpoint_url": self.url}
        return boto3.session.Session().client(service, region_name="us-east-1", **{**known, **settings})
