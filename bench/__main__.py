"""`python -m bench [NAME …]`: a table of the figures, each against its baseline, and its JSON.

Exit code 1 when a figure misses its limit, 2 when one could not be measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.clone import ROOT

RESULTS = ROOT / ".cache" / "bench.json"
MARKDOWN = ROOT / ".cache" / "bench.md"
HEADINGS = ("figure", "median", "max", "baseline", "ratio", "limit", "")


@dataclass(frozen=True)
class Row:
    """One line of the table. `ok` is None for what is reported without a limit."""

    figure: str
    median: str
    maximum: str = ""
    baseline: str = ""
    ratio: str = ""
    limit: str = ""
    ok: bool | None = None


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def against(figure: str, found: dict[str, Any], ours: str, baseline: str) -> Row:
    """What `compared` found of ours, with the limit of its ratio."""
    return Row(
        figure,
        seconds(found["seconds"][ours]),
        seconds(found["max_seconds"][ours]),
        baseline,
        f"{found['ratio']:.2f}×",
        f"≤ {found['limit']:g}×",
        found["ratio"] <= found["limit"],
    )


def preview_rows(found: dict[str, Any]) -> Iterator[Row]:
    ours, bare, again, setup = (found[key] for key in ("preview", "baseline", "second_make_up", "second_setup"))
    yield Row(
        f"pulumi preview of sweep-a, n={ours['n']}",
        seconds(ours["median"]),
        seconds(ours["max"]),
        f"bare program {seconds(bare['median'])}, max {seconds(bare['max'])}",
        f"{found['ratio']:.2f}×",
        f"≤ {found['limit']}×",
        found["ok"],
    )
    yield Row(f"second make up, n={again['n']}", seconds(again["median"]), seconds(again["max"]))
    fast = setup["max"] < 3
    yield Row(f"second set-up, n={setup['n']}", seconds(setup["median"]), seconds(setup["max"]), limit="< 3 s", ok=fast)


def cells_rows(found: dict[str, Any]) -> Iterator[Row]:
    took = found["seconds"]
    yield Row(
        f"pulumi preview of {found['cells']:,} cells, n={found['rounds']}",
        seconds(took["many"]),
        seconds(found["max_seconds"]["many"]),
        f"the same sweep of {found['few']} cells {seconds(took['few'])}",
        f"{found['ratio']:.2f}×",
        f"≤ {found['limit']:g} s",
        took["many"] <= found["limit"],
    )


def queue_rows(found: dict[str, Any]) -> Iterator[Row]:
    more = float(found["extra_ms_per_cell"])
    yield Row(
        f"{found['cells']:,} cells of one 1 KB artifact",
        seconds(found["seconds"]["queue"]),
        seconds(found["max_seconds"]["queue"]),
        f"xargs -P {seconds(found['seconds']['xargs'])}",
        f"+{more:.1f} ms a cell",
        "≤ 15 ms",
        more <= 15,
    )


def slurm_rows(found: dict[str, Any]) -> Iterator[Row]:
    extra, counts = found["extra_ms_per_cell"], " and ".join(f"{count}" for count in found["counts"])
    yield Row(
        f"a cell of one second on Slurm, {found['workers']} workers, {counts} cells: what it costs beyond its second",
        f"{extra['ours']:.0f} ms",
        "",
        f"sbatch --array {extra['plain']:.0f} ms"
        + (
            f", submitit {extra['submitit']:.0f} ms"
            if "submitit" in extra
            else f", no submitit: {found['no_submitit']}"
        ),
        f"{extra['ours'] / 10:.1f} %",
        "≤ 2 %",
        extra["ours"] <= 20,
    )


def seconds_rows(found: dict[str, Any]) -> Iterator[Row]:
    extra, counts = found["extra_ms_per_cell"], " and ".join(f"{count}" for count in found["counts"])
    tune = f"Ray Tune {extra['tune']:.0f} ms" if "tune" in extra else f"no Ray Tune: {found['no_tune']}"
    yield Row(
        f"a cell of one second here, {found['slots']} at once, {counts} cells: what it costs beyond its second",
        f"{extra['ours']:.0f} ms",
        "",
        f"xargs -P {extra['xargs']:.0f} ms, {tune}",
        f"{extra['ours'] / 10:.1f} %",
        "≤ 2 %",
        extra["ours"] <= 20,
    )


def asha_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Cell-seconds are of all trainings of all seeds, the late epochs of stopped cells among them."""
    sums = found["sums"]
    ours, grid, tune = sums["ours"], sums["grid"], sums.get("tune")
    names = {"grid": "the full grid", "tune": "Ray Tune", "optuna": "Optuna"}
    others = {way: name for way, name in names.items() if way in sums}
    missing = "" if tune else f"; no Ray Tune: {found['no_tune']}"
    what = f"ASHA on the digits, {found['cells']} cells of {found['epochs']} epochs, {found['seeds']} seeds"
    yield Row(
        f"{what}: seconds of cells",
        f"{ours['cell_seconds']:.0f} s",
        "",
        ", ".join(f"{name} {sums[way]['cell_seconds']:.0f} s" for way, name in others.items()) + missing,
        f"{ours['cell_seconds'] / grid['cell_seconds']:.2f}×",
        "< 1× the grid",
        ours["cell_seconds"] < grid["cell_seconds"],
    )
    ranks = {way: " ".join(str(rank or "none") for rank in sums[way]["ranks"]) for way in ("ours", *others)}
    yield Row(
        "  where its winner stands in the full grid, by seed",
        ranks["ours"],
        "",
        ", ".join(f"{name} {ranks[way]}" for way, name in others.items() if way != "grid"),
    )
    yield Row(
        "  a trial beyond its training",
        seconds(ours["overhead"]),
        "",
        ", ".join(f"{name} {seconds(sums[way]['overhead'])}" for way, name in others.items()) + missing,
        f"{ours['overhead'] / tune['overhead']:.2f}×" if tune else "",
        "≤ Ray's",
        ours["overhead"] <= tune["overhead"] if tune else None,
    )


def kubernetes_rows(found: dict[str, Any]) -> Iterator[Row]:
    cell, first = found["cell"], found["first"]
    took = cell["seconds"]
    yield Row(
        f"a cell of one second on Kubernetes, one worker, {cell['cells']} cells: from one to the next",
        f"{took['ours'] * 1000:.0f} ms",
        f"{cell['max_seconds']['ours'] * 1000:.0f} ms",
        f"the same loop in one pod {took['loop'] * 1000:.0f} ms",
        f"{cell['ratio']:.3f}×",
        f"≤ {cell['limit']:g}×",
        cell["ratio"] <= cell["limit"],
    )
    took = first["seconds"]
    yield Row(
        f"pulumi up on a ready cluster to the first cell's first line, n={first['rounds']}",
        seconds(took["first"]),
        seconds(first["max_seconds"]["first"]),
        f"first line of a bare Job {seconds(took['job'])} + {first['limit']:g} × up of sweep-a on local "
        f"{seconds(took['local'])}",
        f"{first['ratio']:.2f}×",
        "≤ 1×",
        first["ratio"] <= 1,
    )
    yield from scale_rows(found["scale"], "Kubernetes")


def scale_rows(found: dict[str, Any], where: str = "Slurm") -> Iterator[Row]:
    few = found["4"]
    for count in (10_000, 100_000):
        if str(count) not in found:
            continue
        one, words = found[str(count)], f"{count:,} cells on {where}"
        limits = {what: limit.get(count) for what, limit in found["limits"].items() if isinstance(limit, dict)}
        for what in ("preview", "status"):
            if what in one and limits[what] is not None:
                baseline = f"of 4 cells {seconds(few[what])}"
                if "cpu" in one:
                    baseline += f"; processor time {seconds(one['cpu'][what])}, of 4 cells {seconds(few['cpu'][what])}"
                ratio, limit = f"{one[what] / few[what]:.2f}×", f"≤ {limits[what]:g} s"
                yield Row(
                    f"{what} of {words}", seconds(one[what]), "", baseline, ratio, limit, one[what] <= limits[what]
                )
        if "resources" in one:
            same = one["resources"] == few["resources"]
            yield Row(f"  resources of {words}", str(one["resources"]), "", f"of 4 cells {few['resources']}", ok=same)
        if "watches" in one:
            yield Row(
                f"  watches of {words}",
                str(one["watches"]),
                limit=f"≤ {one['boxes']}",
                ok=one["watches"] <= one["boxes"],
            )
        most = found["limits"]["memory"]
        size, plain = f"{one['memory'] / 1e6:.0f} MB", f"of 4 cells {few['memory'] / 1e6:.0f} MB"
        yield Row(f"  largest process, {words}", size, "", plain, "", "≤ 1 GB", one["memory"] <= most)


def verify_rows(found: dict[str, Any]) -> Iterator[Row]:
    size = f"{found['bytes'] / 1e9:.0f} GB in {found['files']} files, {found['workers']} workers"
    plain = f"hashlib.file_digest {seconds(found['seconds']['plain'])}"
    for way, key, limit in (("restricted reader", "ratio", 1.5), ("torch.load", "torch_ratio", None)):
        if found.get(key) is None:
            continue
        name = way.split(".")[0].split()[0]
        yield Row(
            f"verify by {way}, {size}",
            seconds(found["seconds"][name]),
            seconds(found["max_seconds"][name]),
            plain,
            f"{found[key]:.2f}×",
            f"≤ {limit}×" if limit else "",
            found[key] <= limit if limit else None,
        )


def status_rows(found: dict[str, Any]) -> Iterator[Row]:
    for what, one in (("sealed", found), ("at work", found["running"])):
        yield Row(
            f"sweepctl status of {one['cells']:,} cells, {what}, n={one['rounds']}",
            seconds(one["seconds"]["status"]),
            seconds(one["max_seconds"]["status"]),
            f"cat of {one['journal_bytes'] / 1e6:.0f} MB {seconds(one['seconds']['cat'])}",
            f"{one['ratio']:.0f}×",
            "≤ 1.5 s",
            one["seconds"]["status"] <= 1.5,
        )


def review_rows(found: dict[str, Any]) -> Iterator[Row]:
    took = found["seconds"]
    yield Row(
        f"sweepctl review of {found['cells']:,} cells on {found['boxes']} boxes, n={found['rounds']}",
        seconds(took["review"]),
        seconds(found["max_seconds"]["review"]),
        f"the preview, which comes on top {seconds(took['preview'])}",
        f"{found['ratio']:.2f}×",
        f"≤ {found['limit']:g} s",
        took["review"] <= found["limit"],
    )


def report_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Of the clock; with the CPU time, which neighbours change less."""
    of = f"{found['cells']:,} cells on {found['boxes']} boxes, n={found['rounds']}"
    for what, name in (
        ("made", f"sweepctl results --as html of {of}"),
        ("opened", f"its page ({found['bytes'] / 1e6:.1f} MB) opened in Chromium"),
        ("drawn", "  until all its plots are drawn"),
    ):
        one = found[what]
        took, limit = one["seconds"], one.get("limit")
        yield Row(
            name,
            seconds(took[what]),
            seconds(one["max_seconds"][what]),
            f"of a sweep of 4 cells {seconds(took[f'{what}_few'])}; CPU time {seconds(took[f'{what}_cpu'])}",
            f"{one['ratio']:.2f}×",
            f"≤ {limit:g} s" if limit else "",
            took[what] <= limit if limit else None,
        )


def small_rows(found: dict[str, Any]) -> Iterator[Row]:
    took = found["seconds"]
    name = f"sweepctl status of {found['cells']} cells, n={found['rounds']}"
    yield against(name, found, "status", f"pulumi stack export {seconds(took['export'])}")


def overhead_rows(found: dict[str, Any]) -> Iterator[Row]:
    share, memory = float(found["cpu_share"]), found["rss"] / 1e6
    over = f"{found['seconds']:.0f} s, {found['cells']:,} cells in the queue, {found['patrol_lines']} patrol lines"
    yield Row(f"runner and patrol, CPU of a core over {over}", f"{share:.2%}", "", "", "", "< 1 %", share < 0.01)
    yield Row("runner and patrol, memory", f"{memory:.0f} MB", "", "", "", "< 60 MB", memory < 60)


def s3_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Bytes over the line, a second time: as good as none."""
    for what, step in found["steps"].items():
        if what in ("pull", "verify"):
            continue
        share = step["moved"] / found["bytes"]
        yield Row(
            f"{what}, {found['bytes'] / 1e9:.1f} GB in S3",
            seconds(step["seconds"]),
            "",
            f"moved {step['moved'] / 1e3:.0f} kB, {step['same'] / 1e9:.2f} GB unchanged",
            f"{100 * share:.4f} %",
            f"≤ {100 * found['limit']} %",
            share <= found["limit"],
        )


def sets_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Bytes that sets of checkpoints send to a bucket: those that changed."""
    for what, step in found["steps"].items():
        ratio = step["up"] / step["changed"]
        yield Row(
            f"{found['bytes'] / 1e6:.0f} MB of checkpoints to a bucket: {what}, bytes up",
            seconds(step["seconds"]),
            "",
            f"bytes changed, {step['changed'] / 1e6:.0f} MB",
            f"{ratio:.4f}×",
            f"≤ {found['limit']}×",
            ratio <= found["limit"],
        )


def renting_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Time is scaled; seconds are the platform's."""
    for name, one in found.items():
        on = f"{one['boxes']} boxes of {name}"
        for verb in ("up", "destroy"):
            took = one["commands"][verb]
            yield Row(
                f"{verb} of {on}, time {one['scale']:g}× faster",
                seconds(took["seconds"]),
                "",
                f"ideal at {one['limits']} {seconds(took['ideal'])}",
                f"{took['ratio']:.2f}×",
                "≤ 1.3×",
                took["ratio"] <= 1.3,
            )
        lists = one["commands"]["refresh"]["lists"]
        pages = one["pages"]
        yield Row(
            f"calls for the list in a preview of {on}",
            str(lists),
            "",
            f"{one['boxes']} reads",
            "",
            f"one list: {pages} page{'s' if pages > 1 else ''}",
            lists == pages,
        )
        peak = one["peak_bytes"]
        yield Row(f"plugin's memory, {on}", f"{peak / 1e6:.0f} MB", "", "", "", "< 300 MB", peak < 300e6)
        routes = ", ".join(f"{count} {route}" for route, count in one["calls"].items())
        yield Row(f"API calls per box, {on}", f"{one['calls_per_box']:.2f}", "", routes)


def pull_rows(found: dict[str, Any]) -> Iterator[Row]:
    for one in found.values():
        what = f"{one['files']:,} file{'s' if one['files'] > 1 else ''}, {one['bytes'] / 1e9:.2g} GB"
        name = f"pull over loopback sshd of {what}, n={one['rounds']}"
        yield against(name, one, "ours", f"rsync -a --fsync + sha256sum -c {seconds(one['seconds']['rsync'])}")


def typed_rows(found: dict[str, Any]) -> Iterator[Row]:
    took = found["seconds"]
    what = f"of {found['files']:,} small files over sshd, n={found['rounds']}"
    rsync = f"rsync -a + sha256sum -c {seconds(took['rsync'])}"
    status = f"{rsync}; sweepctl status {seconds(took['status'])}"
    yield against(f"sweepctl pull --verify {what}", found, "ours", status)
    two = {**found["two"], "limit": found["limit"]}
    yield against(f"sweepctl pull, then sweepctl verify, {what}", two, "two", rsync)


def pulled_rows(found: dict[str, Any]) -> Iterator[Row]:
    """The cells of `tiny` hold next to nothing that could be hashed: what a cell itself costs, without a limit."""
    for one, limit in ((found, found["limit"]), (found["tiny"], None)):
        held = f"{one['bytes'] / 1e6:,.0f} MB in {one['files']:,} files"
        what = f"sweepctl verify of {one['cells']:,} pulled cells, {held}"
        for name, key, ratio in (("wall clock", "seconds", "ratio"), ("processor time", "cpu_seconds", "cpu_ratio")):
            yield Row(
                f"{what}, n={one['rounds']}, {name}",
                seconds(one[key]["verify"]),
                seconds(one[f"max_{key}"]["verify"]),
                f"hashlib.file_digest, {one['workers']} processes {seconds(one[key]['hashlib'])}",
                f"{one[ratio]:.2f}×",
                f"≤ {limit:g}×" if limit else "",
                one[ratio] <= limit if limit else None,
            )


def hosts_rows(found: dict[str, Any]) -> Iterator[Row]:
    took = found["seconds"]
    name = f"sweepctl status of {found['cells']:,} cells on {found['hosts']} hosts, n={found['rounds']}"
    ssh = f"{found['hosts']} warm ssh true at once {seconds(took['ssh'])}"
    yield against(name, found, "status", f"{ssh}; Python's own start {seconds(took['python'])}")


def start_rows(found: dict[str, Any]) -> Iterator[Row]:
    took, most = found["seconds"], found["max_seconds"]
    yield Row(
        f"pulumi up on a ready host to the first training process, n={found['rounds']}",
        seconds(took["up"]),
        seconds(most["up"]),
        f"by hand over warm ssh {seconds(took['hand'])}, max {seconds(most['hand'])}",
        f"{found['ratio']:.2f}×",
    )
    for stage in found["stages"]:
        yield Row(f"  of it: {stage}", seconds(took[stage]), seconds(most[stage]))


def split_rows(found: dict[str, Any]) -> Iterator[Row]:
    ours, before = found["ratio"], found["rendezvous"]
    yield Row(
        f"cells split by measured time, makespan, {found['draws']} draws",
        f"{ours['median']:.2f}×",
        f"{ours['max']:.2f}×",
        f"LPT 1×; rendezvous hashing {before['median']:.2f}×, max {before['max']:.2f}×",
        f"{ours['max']:.2f}×",
        f"≤ {found['limit']}×",
        ours["max"] <= found["limit"],
    )
    yield Row(
        "  nothing measured: cells that one box has more than another",
        "",
        str(found["uneven"]),
        limit="≤ 1",
        ok=found["uneven"] <= 1,
    )


def makespan_rows(found: dict[str, Any]) -> Iterator[Row]:
    """The median decides where costs are unknown: of one draw, luck does."""
    for costs, name, statistic in (("unknown", "one FIFO queue", "median"), ("known", "LPT", "max")):
        limit = found["limits"][costs]
        for way, words in (("one_queue", "one queue"), ("own_queues", "own queues and tend")):
            ours, plain = found[costs][way], found[costs]["fifo_again"]
            yield Row(
                f"makespan, {found['boxes']} boxes of speeds 1 to 4, costs {costs}, {words}, {found['draws']} draws",
                f"{ours['median']:.3f}×",
                f"{ours['max']:.2f}×",
                f"{name} 1×; FIFO in another order {plain['median']:.3f}×, max {plain['max']:.2f}×",
                f"{ours[statistic]:.3f}×, {ours['box_hours']:.0%} of the box-hours until the end",
                f"≤ {limit}×",
                ours[statistic] <= limit,
            )


def lease_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Months in simulated time. Which faults they are of: `python -m bench.lease_bench`."""
    for name, one in found["platforms"].items():
        yield Row(
            f"hours billed after the last need, {name}, {one['months']} months",
            f"{one['with']['median']:.1f} h",
            f"{one['with']['worst']:.1f} h",
            f"without lease {one['without']['median']:.0f} h, max {one['without']['worst']:.0f} h",
            f"{one['in_time']} in time, {one['told']} told why not",
            "0 silent",
            one["silent"] == 0,
        )


def size_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Reported without a verdict until issue L is done: then each limit binds."""
    for figure, count in found["found"].items():
        yield Row(figure, f"{count:,}", "", limit=f"≤ {found['limits'][figure]:,}")


ARGUMENTS: dict[str, dict[str, Any]] = {
    "preview": {"n": 10, "ups": 3},
    "queue": {"cells": 1000, "rounds": 5},
    "verify": {"total_bytes": 4_000_000_000, "rounds": 5},
    "pulled": {"rounds": 3},
}
"""So that all figures together take half an hour; `python -m bench.queue_bench 2000 20` measures longer."""
SECONDS = 300.0
"""How long one of them may take. What takes longer has no figure, and the others are still measured."""
LONGER = {
    "slurm": 900.0,
    "kubernetes": 900.0,
    "slurm_scale": 900.0,
    "seconds": 900.0,
    "asha": 1800.0,
    "renting": 600.0,
    "pull": 600.0,
    "lease": 600.0,
}
BENCHES: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "preview": preview_rows,
    "cells": cells_rows,
    "queue": queue_rows,
    "slurm": slurm_rows,
    "slurm_scale": scale_rows,
    "kubernetes": kubernetes_rows,
    "seconds": seconds_rows,
    "asha": asha_rows,
    "verify": verify_rows,
    "small": small_rows,
    "status": status_rows,
    "review": review_rows,
    "report": report_rows,
    "overhead": overhead_rows,
    "s3": s3_rows,
    "sets": sets_rows,
    "renting": renting_rows,
    "pull": pull_rows,
    "typed": typed_rows,
    "pulled": pulled_rows,
    "hosts": hosts_rows,
    "start": start_rows,
    "split": split_rows,
    "makespan": makespan_rows,
    "lease": lease_rows,
    "size": size_rows,
}


def table(rows: list[Row]) -> Table:
    made = Table(title="sweepstack, measured on this machine", title_justify="left")
    for heading in HEADINGS:
        made.add_column(heading, justify="right" if heading in ("median", "max", "ratio") else "left")
    for row in rows:
        verdict = "" if row.ok is None else "[green]holds[/]" if row.ok else "[red]MISSED[/]"
        made.add_row(row.figure, row.median, row.maximum, row.baseline, row.ratio, row.limit, verdict)
    return made


def markdown(rows: list[Row]) -> str:
    """The same table for docs/performance.md."""
    lines = [HEADINGS, ("---",) * len(HEADINGS)]
    for row in rows:
        verdict = "" if row.ok is None else "holds" if row.ok else "**missed**"
        lines.append((row.figure.strip(), row.median, row.maximum, row.baseline, row.ratio, row.limit, verdict))
    return "".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |\n" for line in lines)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in what is inside when it takes longer: it cleans up as after any error."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("benches", nargs="*", choices=[[], *BENCHES], metavar="|".join(BENCHES))
    chosen = parser.parse_args().benches or list(BENCHES)
    console = Console()
    rows: list[Row] = []
    results: dict[str, Any] = {
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()},
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    broken = False
    for name in chosen:
        console.print(f"{name}: measuring …")
        results["load_before_" + name] = os.getloadavg()[0]
        try:
            began = time.monotonic()
            with within(LONGER.get(name, SECONDS)):
                results[name] = importlib.import_module(f"bench.{name}_bench").measure(**ARGUMENTS.get(name, {}))
            results["seconds_of_" + name] = round(time.monotonic() - began)
            rows += BENCHES[name](results[name])
        except Exception as error:  # one figure that cannot be had must not hide the others
            broken = True
            results[name] = {"error": f"{type(error).__name__}: {error}"}
            console.print(f"{name}: could not be measured: {error}", style="red", markup=False)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    console.print(table(rows))
    MARKDOWN.write_text(markdown(rows), encoding="utf-8")
    console.print(f"as Markdown: {MARKDOWN.relative_to(ROOT)}")
    console.print(f"JSON: {RESULTS.relative_to(ROOT)}")
    if broken:
        return 2
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
