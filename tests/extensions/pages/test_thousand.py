"""The page of a thousand cells, and each theme on each width, in a real headless Chromium.

What it costs is measured by `make bench`, not here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.report_bench import build, make
from tests.extensions.pages.opened import DESK, PHONE, Shown, chromium, is_open

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.proof  # each promise for eight cells: tests/extensions/pages/test_browser.py

CELLS = 1000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    with chromium(tmp_path_factory.mktemp("chromium")) as context:
        yield context


@pytest.fixture(scope="module")
def shown(browser: BrowserContext, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The page of a thousand cells."""
    return _page(browser, tmp_path_factory.mktemp("thousand"), CELLS, 50)


@pytest.fixture(scope="module")
def few(browser: BrowserContext, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The page of as many cells as a table needs to scroll: axe-core takes 40 s for a thousand."""
    return _page(browser, tmp_path_factory.mktemp("few"), 20, 2)


def _page(browser: BrowserContext, folder: Path, cells: int, boxes: int) -> Shown:
    """Made by the command, and opened by a reader."""
    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        try:
            make(build(folder, cells, boxes, patch), folder / "page.html")
        finally:
            os.chdir(here)
    return Shown(browser.new_page(), folder / "page.html")


def names() -> list[str]:
    """Every 37th cell, the first and the last among them."""
    every = [f"lr{round(0.001 * lr, 3)}-seed{seed}" for lr in range(1, 11) for seed in range(100)]
    return [*every[::37], every[-1]]


def test_every_cell_is_found_in_tables_that_are_not_laid_out_yet(shown: Shown) -> None:
    rows = shown.page.locator("table[data-find] > tbody > tr > :first-child").all_text_contents()
    assert len({row for row in rows if row.startswith("lr")}) == CELLS
    for name in names():
        assert shown.says(name), f"{name}: the browser does not find it"
    for name in names()[:3]:
        assert set(shown.find(name)) >= {name}
    shown.find("")
    assert shown.wrong == []


def test_it_is_open_before_the_plots_out_of_view_are_drawn(shown: Shown) -> None:
    """A reader waits for what is seen, and not for a plot of a thousand curves far below."""
    page = shown.page.context.new_page()
    page.goto(shown.file.as_uri())
    is_open(page)
    drawn, hosts = page.evaluate(
        "[Number(document.documentElement.dataset.drawn || 0), document.querySelectorAll('.plot').length]"
    )
    page.close()
    assert drawn < hosts


@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_it_is_accessible(few: Shown, scheme: str, width: int) -> None:
    few.put_on(scheme, width)
    few.until(f"innerWidth === {width} && document.documentElement.scrollWidth <= {width}")
    assert few.page.locator(".table.tall").count() >= 2
    assert few.serious() == []
    assert few.wrong == []


def test_print_shows_each_row(shown: Shown) -> None:
    shown.page.emulate_media(media="print")
    cut = "(all) => all.filter((one) => getComputedStyle(one).overflow !== 'visible').length"
    assert shown.page.locator(".table").evaluate_all(cut) == 0
    short = "(all) => all.filter((one) => one.clientHeight < 15 * one.querySelectorAll('tr').length).length"
    assert shown.page.locator(".table.tall").count() >= 3
    assert shown.page.locator(".table.tall").evaluate_all(short) == 0, "none is cut off"
    shown.page.emulate_media(media="screen")
