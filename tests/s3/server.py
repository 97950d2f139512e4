"""A real S3 server of our own: VersityGW, built by set-up, on a free port of this machine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.go_tool import S3_SERVER
from scripts.lib.places import Places
from tests.addresses import port_for_a_program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = S3_SERVER.binary(Places.of(ROOT, dict(os.environ)))
START_SECONDS = 60
HEALTH = "/health"


class S3Server:
    """One server with a folder of its own. Stopped, it starts again on the same port with the same objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.access, self.secret = "sweeper", secrets.token_hex(12)
        self.port = port_for_a_program()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        if not PROGRAM.is_file():
            pytest.fail(f"{PROGRAM} is not there: `make test` builds it, or scripts/setup --dev --s3")
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        (self.folder / "users").mkdir(exist_ok=True)
        serves = ["--port", f"127.0.0.1:{self.port}", "--iam-dir", str(self.folder / "users"), "--health", HEALTH]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--quiet", "--keep-alive", *serves, "posix", str(self.folder / "data")],
                env={"ROOT_ACCESS_KEY": self.access, "ROOT_SECRET_KEY": self.secret},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + HEALTH, timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        pytest.fail(f"{PROGRAM} did not start: {(self.folder / 'server.log').read_text()[-2000:]}")

    def stop(self) -> None:
        """Ends it at once, as a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def add_user(self, access: str) -> str:
        """A user of these keys, who may do nothing yet. Returns the secret."""
        secret = secrets.token_hex(12)
        subprocess.run(
            [PROGRAM, "admin", "create-user", "--access", access, "--secret", secret, "--role", "user"],
            env={"ADMIN_ENDPOINT_URL": self.url, "ADMIN_ACCESS_KEY": self.access, "ADMIN_SECRET_KEY": self.secret},
            check=True,
            capture_output=True,
            timeout=START_SECONDS,
        )
        return secret

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

    def sdk(self, **settings: Any) -> Any:
        """A client of its own, to look and to do damage with."""
        import boto3

        known = {"aws_access_key_id": self.access, "aws_secret_access_key": self.secret, "endpoint_url": self.url}
        return boto3.session.Session().client("s3", region_name="us-east-1", **{**known, **settings})
