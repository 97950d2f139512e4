"""`sweepctl status`: where every cell is, what runs, what it costs, what to type next."""

from __future__ import annotations

from sweep.cli.look import Sources, look, open_sources
from sweep.cli.output import NO, UNSURE, YES, Out, warm
from sweep.cli.progress import Progress
from sweep.cli.screen import render
from sweep.cli.target import Target
from sweep.cli.telling import Teller
from sweep.scene import Scene
from sweep.state import Export
from sweep.view import SweepView, compose


def status(target: Target, out: Out, export: Export) -> int:
    """Exit code: 1 when something runs that the state does not know, 2 when that could not be told, else 0."""
    if not out.as_json:
        warm()
    with Progress("looking"):
        sources = open_sources(target, export)
        kept = target.is_store or any(volume.guarded for volume in sources.state.volumes)
    if kept:
        from sweep.cli.status_store import status_store

        return status_store(sources, out)
    with Progress("looking"):
        scene = look(sources, files=out.as_json)  # of the files, only the document says something
        view = compose(scene)
    teller = Teller()
    teller.look(sources, scene, view)
    if out.as_json:
        out.document(view.as_json())
    render(view, out)
    teller.end()
    return exit_code(sources, scene, view)


def exit_code(sources: Sources, scene: Scene, view: SweepView) -> int:
    """What the picture answers to "is all that runs in the state?"."""
    if view.unknown:
        return NO
    untold = view.bills == "unknown" or not scene.searched
    return UNSURE if untold and (sources.evidence or sources.problem) else YES
