"""The job of a queue as the engine's state keeps it: what a cell runs, and what its box is prepared with."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweepstack.core.records import Digest, Record


class MetricsInput(Record):
    """Which file of a cell holds its curve."""

    file: str
    """its path in the folder of a cell"""
    x: str
    """the column of the x axis"""
    y: tuple[str, ...]
    """the columns that are drawn"""
    stop_on_nan: bool = False
    """true: a cell whose curve turns NaN is ended"""


class NetworkInput(Record):
    """What stands between a box and the world."""

    env: dict[str, str] = Field(default_factory=dict)
    """variables of mirrors and caches; `~/` is the login's home"""
    proxy_on: str = ""
    """shell line that switches the proxy on"""
    proxy_off: str = ""
    """shell line that switches it off"""
    proxy_always: bool = False
    """true: every set-up and cell has it on"""


class BucketInput(Record):
    """A bucket that cells see."""

    path: str
    """where, as the job names it"""
    source: str
    """`s3://bucket/prefix`"""
    mode: Literal["COPY", "MOUNT", "MOUNT_CACHED"]
    """`COPY`, `MOUNT` or `MOUNT_CACHED`"""
    endpoint: str = ""
    """the server; empty: that of AWS"""


class BoxSmoke(Record):
    """A smoke run on the box, before any cell."""

    run: str
    """a shell command with the placeholders of a cell"""
    seconds: float = Field(gt=0)
    """after how long it has failed"""


class WhenDrained(Record):
    """How a box ends its own bill once its queue is drained."""

    native: str
    """the platform's word for it"""
    command: str
    """the command on the box"""


class JobInput(Record):
    """What a cell runs."""

    run: str
    """a shell command with placeholders"""
    workdir: str
    """the folder of its code, as the person wrote it"""
    include: tuple[str, ...] = ()
    """globs, relative to `workdir`, of files that ship although git does not track them"""
    env: dict[str, str] = Field(default_factory=dict)
    """environment variables; no secrets"""
    slots: int = Field(default=1, ge=1)
    """cells at once on the box"""
    code: Digest
    """digest of the files that ship"""
    setup: str | None = None
    """shell commands that prepare the box, run once for each version of the code"""
    secrets: tuple[str, ...] | None = None
    """names of environment variables that go to the box; their values are in no input"""
    gpus: int | None = None
    """the GPUs of the box; absent where none were asked for"""
    mixing: Literal["refuse", "allow"] | None = None
    """`refuse`: no new code while cells that ran keep the old; `allow`: that is meant so"""
    min_free_bytes: int | None = None
    """below so many free bytes no cell starts"""
    min_free_inodes: int | None = None
    """below so many free inodes no cell starts"""
    stall_seconds: float | None = None
    """after so long without a sign of life a cell is shown as hung"""
    timeout_seconds: float | None = None
    """how long one try of a cell may take; absent: any time"""
    on_hang: Literal["retry", "drop"] | None = None
    """what becomes of a hung cell: `retry` or `drop`; absent: it is only told"""
    retries: int | None = None
    """how often a cell that failed is tried again by itself"""
    network: NetworkInput | None = None
    """mirrors and proxy of the box"""
    mounts: tuple[BucketInput, ...] | None = None
    """buckets that cells see"""
    when_drained: WhenDrained | None = None
    """how the box ends its own bill once its queue is drained"""
    smoke: BoxSmoke | None = None
    """a smoke run on the box"""
    image: str | None = None
    """the container image, on platforms that use one"""
