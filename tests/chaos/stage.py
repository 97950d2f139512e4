"""What plans share: the process that forks providers, the one with the platforms, a key for SSH."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.plans import plan
from tests.chaos.platform_process import Platforms
from tests.chaos.provider_process import Nursery
from tests.chaos.story import Play, Verdict


class Stage:
    """A context manager; `play` may be called from threads."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._key = self._folder / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key)], check=True)
        self._nursery, self._platforms = Nursery(), Platforms()

    def play(self, seed: int) -> Verdict:
        """The plan of a seed, in a folder of its own that is gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"plan-{seed}-", dir=self._folder))
        try:
            return Play(plan(seed), folder, self._nursery, self._platforms, self._key).play()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._nursery.close()
        self._platforms.close()
        shutil.rmtree(self._folder, ignore_errors=True)
