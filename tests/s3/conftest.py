from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import botocore.session
import pytest

from sweepstack.platforms.common import s3_client
from tests.s3.server import S3Server
from tests.unit.evidence.world import World

BUCKET = "lab"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        server.sdk().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session", autouse=True)
def models() -> Iterator[None]:
    """botocore's own descriptions of services are read once a process: a client of one's own then takes no time."""
    once = botocore.session.create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", lambda *_: once)
        yield


@pytest.fixture(autouse=True)
def settings(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a shell that may use the server, with a cache of its own."""
    for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    s3_client.forget()
    yield
    s3_client.forget()


@pytest.fixture
def uri() -> str:
    """A prefix that nobody else uses."""
    return f"s3://{BUCKET}/sweeps/s{next(_numbers)}"


@pytest.fixture
def world(tmp_path: Path, uri: str) -> World:
    """Three cells, one box, and evidence in the bucket."""
    (tmp_path / "world").mkdir()
    return World(tmp_path / "world", uri=uri)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From here on this is another machine, which has nothing of the sweep: an empty cache."""

    def go() -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache-{next(_numbers)}"))

    return go
