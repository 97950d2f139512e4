"""For all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sweepstack.core.extensions import FOLDER
from tests.oldest_python import onbox_python
from tests.proof.plugin import Proof
from tests.scheduling import Sharing, import_share, in_order

TESTS = Path(__file__).resolve().parent
LIVE = TESTS / "live"
CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
settings.register_profile("suite", derandomize=True, deadline=None, max_examples=25, suppress_health_check=CALM)
settings.register_profile("deep", deadline=None, max_examples=3000, suppress_health_check=CALM)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Without `--live`, `tests/live` is not there; with it, nothing else is."""
    group = parser.getgroup("sweepstack")
    group.addoption("--live", metavar="PLATFORM", help="run the conformance suite on a real account: costs money")
    group.addoption("--proof", action="store_true", help="run what is marked `proof`, too: hours")
    group.addoption(
        "--slice",
        nargs="?",
        const="",
        metavar="COMMIT",
        help="run half a minute of what is marked `proof`, too: that of this commit, or of the one that is checked out",
    )
    group.addoption("--spend", metavar="USD", type=float, help="what a --live run may cost at most")


def pytest_configure(config: pytest.Config) -> None:
    """Gives commands that tests start the default of Ctrl-C: under `nohup … &` it is ignored, and that is inherited.

    Hypothesis tries the same examples every time; `pytest tests/fuzz --hypothesis-profile=deep` looks for new ones. A
    test keeps the profile that was in force while its module was imported: so it is loaded before any of them.
    """
    gc.disable()  # until all is collected
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("suite")
    config.pluginmanager.register(Proof(config), "sweepstack-proof")
    worker = getattr(config, "workerinput", None)
    if config.getoption("--live"):
        from tests.live.run import begin

        begin(config, config.getoption("--live"), config.getoption("--spend"))
    elif worker is None:
        _leave_the_user_alone(config)
    else:
        import_share(TESTS, int(worker["workerid"].removeprefix("gw")), worker["workercount"])


def _leave_the_user_alone(config: pytest.Config) -> None:
    """What tests remember (places of evidence, keys of hosts) stays out of the records of the person who runs them:
    `sweepctl ledger --all` reads those. For a test that says nothing of its own; the other processes inherit it."""
    folder = tempfile.mkdtemp(prefix="sweepstack-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ |= {"XDG_DATA_HOME": f"{folder}/data", "KUBECACHEDIR": f"{folder}/kube"}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs an extension whose folder was taken out."""
    needed = [name for mark in item.iter_markers("needs_extension") for name in mark.args]
    gone = [name for name in needed if not (FOLDER / name / "__init__.py").is_file()]
    if gone:
        pytest.skip(f"needs {', '.join(gone)}, which was taken out")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which Python the tests of what runs on boxes ran on."""
    reports = [one for some in terminalreporter.stats.values() for one in some]
    if any(str(getattr(one, "nodeid", "")).startswith("tests/onbox/") for one in reports):
        python = onbox_python()
        asked = [python, "-c", "import platform; print(platform.python_version())"]
        version = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False).stdout.strip()
        terminalreporter.line(f"tests/onbox ran the runner on Python {version} ({python})")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Real money is spent only when it is asked for, and then on nothing but that."""
    inside = LIVE in (collection_path, *collection_path.parents)
    if not config.getoption("--live"):
        return True if inside else None
    return None if inside or collection_path in LIVE.parents else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, the longest files first: one that begins last leaves the other cores idle for minutes."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = in_order(items)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look through it each time. And
    it looks less often: reading all of the code as syntax trees takes a quarter of the time then."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 25, 25)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing | None:
    """What `--dist loadfile` is here."""
    return Sharing(config, log) if config.getoption("dist") == "loadfile" else None
