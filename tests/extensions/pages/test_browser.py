"""The page in a real headless Chromium. It is opened once; each test sets what it needs of size, colours and filter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from sweepstack.extensions.pages.plots import Part
from sweepstack.extensions.pages.plots import page as page_of
from sweepstack.onbox.common import box_layout
from sweepstack.report.blocks import Code, Table
from tests.extensions.pages.opened import FIGURE, PHONE, Shown, chromium
from tests.extensions.pages.test_plots import every_block
from tests.unit.cli.support import World
from tests.unit.report.test_page import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, sweep: Path) -> Iterator[BrowserContext]:
    """One for all tests of this file."""
    with chromium(tmp_path_factory.mktemp("chromium")) as context:
        yield context


def curve(name: str, steps: int) -> list[dict[str, Any]]:
    start = 1 + crc32(name.encode()) % 100 / 100  # no two end the same
    return [{"step": step, "loss": start / (step + 1), "acc": 1 - 1 / (step + 2)} for step in range(steps)]


def play(world: World) -> None:
    """Two boxes at work on eight cells: six are sealed and verified, one of them after it was cut off; one failed, and
    one runs. What the machines did is there.
    """
    first, second = world.add("box-0"), world.add("box-1", price=1.2)
    world.up_roster = world.file_roster()
    cells = {cell.name: cell for cell in world.up_roster.cells}
    world.cell = cells.__getitem__  # type: ignore[method-assign]
    names = list(cells)
    first.launch(*names[:5])
    second.launch(*names[5:])
    for number, box in enumerate((first, second)):
        born = box.begin - timedelta(minutes=10)
        world.store.write_birth(box.birth(begun_at=born, created_at=born))
        box.log("setup-started", setup="s", code="c")
        box.log("setup-finished", after=90, setup="s", seconds=90.0)
        for name in list(box.cells)[: 4 - 2 * number]:
            rows = curve(name, 12)
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            attempt = 1
            if name == names[1]:
                box.start(name)
                box.log("runner-stopped", after=60, signal="SIGTERM")
                box.log("runner-started", after=300, pid=2)
                attempt = 2
            box.start(name, attempt, metrics=rows)
            box.begin += timedelta(minutes=5)
            last = json.dumps({"loss": rows[-1]["loss"]}).encode()
            box.seal(name, attempt, files={"metrics.jsonl": text, "metrics.json": last})
    first.start(names[4], metrics=curve(names[4], 5))
    second.start(names[7])
    second.fail(names[7])
    for number, box in enumerate((first, second)):
        box.alive()
        with (box.root / box_layout.PATROL).open("a") as handle:
            for minute in range(20):
                at = datetime.now(UTC) - timedelta(minutes=20 - minute)
                used = {"used": 30 + minute, "limit": 64}
                gpu = {"index": 0, "util": 90 + minute % 7, "memory_used": 40, "memory_total": 80, "temperature": 60}
                disk = {"free": 50 - minute, "total": 100, "inodes_free": 9, "inodes_total": 10 + number}
                alarms = ["disk 95% full"] if minute > 15 else []
                line = {
                    "time": at.isoformat(),
                    "running": [],
                    "memory": used,
                    "disk": disk,
                    "gpus": [gpu],
                    "alarms": alarms,
                }
                handle.write(json.dumps(line) + "\n")
    assert world.run("pull").code == 0
    world.run("verify")  # exit code 1: two are not there


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that sweep, made by the command. It ends before the browser begins."""
    folder = tmp_path_factory.mktemp("sweep")
    silent = SimpleNamespace(readouterr=lambda: SimpleNamespace(out="", err=""))
    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        world = World(folder, patch, silent, lrs="[0.1, 0.3], seed: [0, 1, 2, 3]")  # type: ignore[arg-type]
        try:
            play(world)
            assert world.run("results", "--as", "html", "-o", str(folder / "page.html")).code == 0
        finally:
            os.chdir(here)
            for box in world.boxes:
                box.alive(False)
    return folder / "page.html"


@pytest.fixture(scope="module")
def opened(browser: BrowserContext, sweep: Path) -> Shown:
    return Shown(browser.new_page(), sweep, "dark")


@pytest.fixture
def shown(opened: Shown) -> Iterator[Shown]:
    """The page as it is on a desk, dark: drawn once for all tests. Nothing may have gone wrong when a test ends."""
    yield opened
    opened.find("")
    assert opened.wrong == []


CELLS = {f"lr{lr}-seed{seed}" for lr in (0.1, 0.3) for seed in range(4)}
FAILED = "lr0.3-seed3"


def test_every_cell_is_found_by_the_browser_and_by_the_field(shown: Shown) -> None:
    """By the field: one that is sealed, and the one without a curve, since it failed before it wrote one."""
    plot = shown.page.locator("figure", has_text="loss").locator(".plot").first
    everything = set(shown.names(plot))
    assert everything == CELLS - {FAILED}
    for name in sorted(CELLS):
        assert shown.says(name), f"{name}: the browser does not find it"
    for name in ("lr0.1-seed2", FAILED):
        assert shown.find(name), f"{name}: the page's field hides it"
        assert set(shown.names(plot)) == {name} & everything
    assert shown.find("no such cell") == []
    assert "0 of" in shown.page.locator("#found").inner_text()


def test_a_name_by_hover_and_a_click_on_the_legend(shown: Shown) -> None:
    plot = shown.page.locator("figure", has_text="loss").locator(".plot").first
    plot.scroll_into_view_if_needed()
    at = plot.evaluate(f"""(host) => {{
        const view = ({FIGURE})(host), place = view.el.getBoundingClientRect();
        const data = view.model.renderers[0].data_source.data;
        const [x, y] = [data.xs[0][3], data.ys[0][3]];
        return [place.x + view.frame.x_scale.compute(x), place.y + view.frame.y_scale.compute(y), data.name[0]];
    }}""")
    shown.page.mouse.move(at[0] - 5, at[1] - 5)
    shown.page.mouse.move(at[0], at[1])
    told = shown.page.locator(".bk-Tooltip", has_text=at[2])
    told.first.wait_for()
    shown.page.mouse.move(0, 0)
    drawn = f"(host) => ({FIGURE})(host).model.renderers.filter((one) => one.visible).length"
    before = plot.evaluate(drawn)
    plot.locator(".bk-Legend .bk-item").first.click()
    assert 0 < plot.evaluate(drawn) < before
    plot.locator(".bk-Legend .bk-item").first.click()
    assert plot.evaluate(drawn) == before


HEAD = "Values of each verified cell"


def test_a_click_on_a_header_sorts_and_a_third_one_takes_it_back(shown: Shown) -> None:
    """By all digits and not by what is shown; also by the keyboard, and said to a screen reader. What the field finds
    is found then, too."""
    table = shown.page.locator(f'[aria-label="{HEAD}"] table')
    first = table.locator("tbody tr > :first-child")
    before = first.all_inner_texts()
    assert len(before) >= 6
    head = table.locator("thead th", has_text="loss")
    column = head.evaluate("(one) => one.cellIndex")
    button = head.get_by_role("button")
    keys = "(all, at) => all.map((row) => Number(row.cells[at].dataset.key ?? row.cells[at].textContent))"
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    up = table.locator("tbody tr").evaluate_all(keys, column)
    assert up == sorted(set(up))
    assert first.all_inner_texts() != before
    button.focus()
    shown.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert table.locator("tbody tr").evaluate_all(keys, column) == sorted(up, reverse=True)
    assert set(shown.find("lr0.1-seed2")) == {"lr0.1-seed2"}
    shown.find("")
    button.click()
    assert (head.get_attribute("aria-sort"), first.all_inner_texts()) == ("none", before)
    by_name = table.locator("thead th", has_text="cell").get_by_role("button")
    by_name.click()
    by_name.click()
    assert first.all_inner_texts() == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "none", "one header at a time"
    by_name.click()
    assert first.all_inner_texts() == before


def test_what_is_missing_or_no_number_comes_last_whichever_way(browser: BrowserContext, tmp_path: Path) -> None:
    """As `results --sort` has it: numbers, then texts, then what is not finite or not there."""
    file = tmp_path / "odd.html"
    texts = ["10", "", "9", "nan (1 of 3)", "b", "-inf", "0.5 ± 0.1", "a", "nano"]
    keys = [None] * 6 + ["0.52"] + [None] * 2
    odd = Table("odd", ["x"], [(one,) for one in texts], keys={0: keys})
    file.write_text(page_of("t", [("s", [odd])], find="Find"), "utf-8")
    shown = Shown(browser.new_page(), file)  # stays open: the page of the next tests lies behind it, and is drawn
    cells, button = shown.page.locator("tbody th"), shown.page.locator("thead button")
    button.click()
    assert cells.all_inner_texts() == ["0.5 ± 0.1", "9", "10", "a", "b", "nano", "", "nan (1 of 3)", "-inf"]
    button.click()
    assert cells.all_inner_texts() == ["nano", "b", "a", "10", "9", "0.5 ± 0.1", "", "nan (1 of 3)", "-inf"]
    assert shown.wrong == []


def test_the_cells_over_their_axes(shown: Shown) -> None:
    """A line for each verified cell, with what hover says of it; the field keeps only some."""
    figure = shown.page.locator("figure", has_text="Each cell over its axes")
    plot = figure.locator(".plot").first
    plot.scroll_into_view_if_needed()
    lines = f"""(host) => ({FIGURE})(host).model.renderers.filter((one) => one.glyph.type === 'MultiLine')
        .map((one) => one.data_source.data)
        .flatMap(({{name, said, ys, kind}}) => [...name].map((one, at) => [one, said[at], ys[at].length, kind[at]]))"""
    drawn = plot.evaluate(lines)
    (best,) = (name for name, _, _, kind in drawn if kind == "best")
    assert best in shown.page.locator("tr.marked > th").all_inner_texts()
    assert all(length == 3 for _, _, length, _ in drawn), "lr, seed, and the value that is chosen"
    assert all(said.startswith("lr 0.") and ", loss " in said for _, said, _, _ in drawn)
    shown.find(best)
    assert [name for name, *_ in plot.evaluate(lines)] == [best]
    shown.find("")


def test_print_shows_all(shown: Shown) -> None:
    """What is scrolled on a screen is whole on paper; what one can only click is not there."""
    shown.page.emulate_media(media="print")
    assert not shown.page.locator("nav").is_visible()
    assert not shown.page.locator("#find").is_visible()
    cut = "(all) => all.filter((one) => getComputedStyle(one).overflow !== 'visible').length"
    assert shown.page.locator(".table").evaluate_all(cut) == 0
    assert set(shown.page.locator("tbody th").all_inner_texts()) >= CELLS
    assert shown.page.pdf().startswith(b"%PDF-")
    shown.page.emulate_media(media="screen")


def test_it_is_accessible_and_a_phone_scrolls_up_and_down_only(shown: Shown) -> None:
    """Dark on a desk, then light on a phone: the plots were drawn on a wide page. `test_thousand.py` beside this file
    looks at each theme on each width. The last on this page: it leaves it narrow."""
    assert shown.page.locator(".plot canvas").count() >= 6
    assert shown.serious() == []
    shown.put_on("light", PHONE)
    shown.until("innerWidth === 360 && document.documentElement.scrollWidth <= 360")
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 360
    assert shown.serious() == []


def test_hostile_text_runs_nothing_and_loads_nothing(browser: BrowserContext, tmp_path: Path) -> None:
    """And a word is found far down in a table that the browser has not laid out."""
    file = tmp_path / "hostile.html"
    tall = Table("tall", ["cell"], [(f"needle-{number}",) for number in range(90)])
    parts: list[Part] = [(HOSTILE, every_block(HOSTILE)), ("Far down", [Code(["line"] * 90), tall])]
    file.write_text(page_of(HOSTILE, parts, find=HOSTILE), "utf-8")
    shown = Shown(browser.new_page(), file)
    assert shown.page.locator(".plot canvas").count() >= 3, "its plots are drawn"
    assert shown.page.locator("img").count() == 0
    assert shown.says("needle-77")
    assert shown.serious() == []
    assert shown.page.locator("details:not([open])").count() >= 1
    shown.page.pdf()
    assert shown.page.locator("details:not([open])").count() == 0, "what is folded is open on paper"
    assert shown.wrong == []
