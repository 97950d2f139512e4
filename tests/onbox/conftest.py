from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.onbox.harness import Box


@pytest.fixture
def make_box(tmp_path: Path) -> Iterator[Callable[..., Box]]:
    boxes = []

    def make(**spec: Any) -> Box:
        boxes.append(Box(tmp_path, **spec))
        return boxes[-1]

    yield make
    for box in boxes:
        box.clean()


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    return make_box()
