from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.extensions.pipelines.ci_jobs import forge, project
from tests.s3.server import S3Server

__all__ = ["forge", "project"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("server"))
    server.start()
    for bucket in ("lab", "state"):
        server.sdk().create_bucket(Bucket=bucket)
    yield server
    server.stop()
