"""See the package. What vast.ai and hosts do in that module has nothing that retires."""

from __future__ import annotations

from pathlib import Path

from tests.rented.test_lease import *  # noqa: F403
from tests.rented.test_lease import left, shorten

del (
    test_a_cell_that_works_is_not_cut_short,  # noqa: F821
    test_a_host_without_a_way_tells_and_a_look_renews,  # noqa: F821
    test_cells_are_not_given_the_key_that_sessions_have,  # noqa: F821
    test_the_wall_clock_jumps,  # noqa: F821
    test_where_rest_v2_takes_no_keys_of_pods,  # noqa: F821
)


def test_where_rest_v2_takes_no_keys_of_pods_nothing_stops_it(tmp_path: Path) -> None:
    """The second way is gone: it bills on, and says why each request came to nothing."""
    with left("runpod", tmp_path) as box:
        box.world.sim.faults.add("no_pod_keys", box=box.id, times=None)
        shorten(box.folder)
        box.until(lambda: box.failed("the vendor answered 403"), "REST v2 refuses the key")
        assert box.failed("the vendor answered 410")
        said = box.status()
        assert "should have stopped itself" in said, said
        assert "answered 403" in said, said
        assert "answered 410" in said, said
        assert box.computes()
