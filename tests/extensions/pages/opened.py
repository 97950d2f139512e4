"""A page of ours in a real headless Chromium, for tests and for the bench."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from scripts.lib.apt import BROWSER

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

DEADLINE = 120.0
DESK, PHONE = 1280, 360
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
OFF = ("--disable-component-update", "--disable-sync")
FIGURE = "(host) => [...Bokeh.index].find((one) => one.model.type === 'Figure' && host.contains(one.el))"


@contextmanager
def chromium(folder: Path) -> Iterator[BrowserContext]:
    """The browser, with a home and a profile of its own in this folder."""
    program = BROWSER.found()
    assert program is not None, "no browser: `scripts/setup --dev --browser` (`make test` does it) installs it"
    from playwright.sync_api import sync_playwright

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


def is_open(page: Page) -> None:
    """Waits until a reader can use it: it is loaded, and the plots in view are drawn."""
    page.wait_for_selector("html[data-open]", state="attached")


def cpu_of(folder: Path) -> float:
    """CPU seconds of the browser of this folder, all its processes together."""
    mine = str(folder / "profile")
    (first,) = (
        one
        for one in psutil.Process().children(recursive=True)
        if f"--user-data-dir={mine}" in (words := one.cmdline())
        and not any(word.startswith("--type=") for word in words)
    )
    spent = 0.0
    for one in [first, *first.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent += times.user + times.system
    return spent


@dataclass
class Shown:
    """An open page, and all that went wrong in it."""

    page: Page
    file: Path
    scheme: str = "light"
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._asked)
        self.page.set_viewport_size({"width": DESK, "height": 900})
        self.page.emulate_media(color_scheme=self.scheme)  # type: ignore[arg-type]
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

    def put_on(self, scheme: str, width: int = DESK) -> None:
        """Light or dark, on a desk or on a phone. Each plot is drawn anew where that is another one."""
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=scheme, media="screen")  # type: ignore[arg-type]
        hosts = self.page.locator(".plot").count()
        has = "one.classList.contains('drawn-dark')"
        test = f"[...document.querySelectorAll('.plot')].filter((one) => {has}).length === {hosts * (scheme == 'dark')}"
        self.until(test)
        self.drawn()

    def says(self, text: str) -> bool:
        """Whether the browser's own search finds it, from the top of the page on."""
        self.page.evaluate("getSelection().removeAllRanges()")
        found: bool = self.page.evaluate("(text) => window.find(text)", text)
        return found

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
