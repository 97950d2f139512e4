"""The page in a real headless Chromium. It is opened once; each test sets what it needs of size, colours and filter."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from scripts.lib import browser
from sweepstack.onbox.common import box_layout
from sweepstack.report.blocks import Section
from sweepstack.report.page import page as page_of
from tests.unit.cli.support import World
from tests.unit.report.test_page import HOSTILE, every_block

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

DEADLINE = 120.0
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
OFF = ("--disable-component-update", "--disable-sync")
FIGURE = "(host) => [...Bokeh.index].find((one) => one.model.type === 'Figure' && host.contains(one.el))"


@dataclass
class Shown:
    """An open page, and all that went wrong in it."""

    page: Page
    file: Path
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._asked)
        self.page.goto(self.file.as_uri())
        self.drawn()

    def _said(self, message: Any) -> None:
        if message.type == "error":  # BokehJS warns of a plot without a curve, as the filter makes them
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if request.url != self.file.as_uri() and not request.url.startswith(("data:", "blob:")):
            self.wrong.append(f"asked for {request.url}")

    def until(self, expression: str, arg: Any = None) -> None:
        """Waits for this. Playwright's own way would evaluate text in the page, which the page's policy forbids."""
        ends = time.monotonic() + DEADLINE
        while not self.page.evaluate(expression, arg):
            assert time.monotonic() < ends, f"it never came true: {expression}"
            self.page.wait_for_timeout(50)

    def drawn(self) -> None:
        """Waits until no plot is left to draw."""
        self.page.wait_for_selector("html[data-waiting='0']", state="attached")

    def put_on(self, scheme: str) -> None:
        """Light or dark. Each plot is drawn anew."""
        self.page.emulate_media(color_scheme=scheme, media="screen")  # type: ignore[arg-type]
        hosts = self.page.locator(".plot").count()
        has = "one.classList.contains('drawn-dark')"
        test = f"[...document.querySelectorAll('.plot')].filter((one) => {has}).length === {hosts * (scheme == 'dark')}"
        self.until(test)
        self.drawn()

    def find(self, text: str) -> list[str]:
        """Types into the page's field. The first cells of the rows that are left, in the tables that are filtered."""
        self.page.locator("#find").fill(text)
        # The field waits for the next letter, then counts: its output holds the words that were there when it counted.
        has = f"document.getElementById('found').value {'!==' if text else '==='} ''"
        self.until(has)
        self.until(
            """(text) => [...document.querySelectorAll('table[data-find] > tbody > tr')].every(
            (row) => row.hidden === !row.textContent.toLowerCase().includes(text.toLowerCase()))""",
            arg=text,
        )
        self.drawn()
        rows = "table[data-find] > tbody > tr:not([hidden]) > :first-child"
        return self.page.locator(rows).evaluate_all("(found) => found.map((one) => one.textContent.trim())")

    def names(self, host: Any) -> list[str]:
        """What is drawn in a plot: the names behind its curves or bars."""
        words = f"(host) => ({FIGURE})(host).model.renderers.flatMap((one) => [...one.data_source.data.name])"
        found: list[str] = host.evaluate(words)
        return found

    def serious(self) -> list[str]:
        """What axe-core calls serious or critical."""
        import axe_playwright_python

        source = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
        self.page.evaluate(source)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert found["passes"], "it looked at the page"
        return [
            f"{one['impact']} {one['id']}: {[node['target'] for node in one['nodes']][:3]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory, sweep: Path) -> Iterator[BrowserContext]:
    """The browser, with a home and a profile of its own."""
    program = browser.found()
    assert program is not None, (
        f"no {browser.PACKAGE}: `scripts/setup --dev --browser` (`make test` does it) installs it"
    )
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("chromium")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder / "profile",
            executable_path=program,
            headless=True,
            args=[*FLAGS, *OFF],
            timeout=DEADLINE * 1000,
            env={**os.environ, "HOME": str(folder)},
        )
        context.set_default_timeout(DEADLINE * 1000)
        yield context
        context.close()


def curve(name: str, steps: int) -> list[dict[str, Any]]:
    start = 1 + len(name) % 3
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
            box.seal(name, attempt, files={"metrics.jsonl": text})
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
            assert world.run("report", "-o", str(folder / "page.html")).code == 0
        finally:
            os.chdir(here)
            for box in world.boxes:
                box.alive(False)
    return folder / "page.html"


@pytest.fixture(scope="module")
def opened(chromium: BrowserContext, sweep: Path) -> Shown:
    return Shown(chromium.new_page(), sweep)


@pytest.fixture
def shown(opened: Shown) -> Iterator[Shown]:
    """The page as it is on a desk. Nothing may have gone wrong in it when the test ends."""
    opened.page.set_viewport_size({"width": 1280, "height": 900})
    yield opened
    opened.find("")
    assert opened.wrong == []


CELLS = {f"lr{lr}-seed{seed}" for lr in (0.1, 0.3) for seed in range(4)}


def test_it_is_accessible_in_light_and_dark(shown: Shown) -> None:
    for scheme in ("dark", "light"):
        shown.put_on(scheme)
        assert shown.page.locator(".plot canvas").count() >= 6
        assert shown.serious() == [], scheme


def test_every_cell_is_found_by_the_browser_and_by_the_field(shown: Shown) -> None:
    plot = shown.page.locator("figure", has_text="loss").locator(".plot").first
    everything = set(shown.names(plot))
    assert everything == CELLS - {"lr0.3-seed3"}, "which has no curve: it failed before it wrote one"
    for name in sorted(CELLS):
        shown.page.evaluate("getSelection().removeAllRanges()")
        assert shown.page.evaluate("(name) => window.find(name)", name), f"{name}: the browser does not find it"
    for name in sorted(CELLS):
        rows = shown.find(name)
        assert rows, f"{name}: the page's field hides it"
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


def test_a_phone_scrolls_up_and_down_only(shown: Shown) -> None:
    """Also one that was turned: the plots were drawn on a wide page. The last on this page: it leaves it narrow."""
    shown.page.set_viewport_size({"width": 360, "height": 800})
    shown.until("innerWidth === 360 && document.documentElement.scrollWidth <= 360")
    shown.drawn()
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 360
    assert shown.serious() == []


def test_hostile_text_runs_nothing_and_loads_nothing(chromium: BrowserContext, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(page_of(HOSTILE, [Section(HOSTILE, every_block(HOSTILE))], find=HOSTILE), "utf-8")
    shown = Shown(chromium.new_page(), file)
    assert shown.page.locator(".plot canvas").count() >= 3, "its plots are drawn"
    assert shown.page.locator("img").count() == 0
    assert shown.serious() == []
    assert shown.page.locator("details:not([open])").count() >= 1
    shown.page.pdf()
    assert shown.page.locator("details:not([open])").count() == 0, "what is folded is open on paper"
    assert shown.wrong == []
