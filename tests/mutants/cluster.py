"""Mutants of what a cluster does to a sweep: what tests on a real Slurm prove, each broken once."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

ONBOX = "sweepstack/extensions/slurm/onbox"
HELD, LONG = "tests/extensions/slurm/test_must_hold.py", "tests/extensions/slurm/test_long_runs.py"
ANY_END = Patch(
    "sweepstack/provider/resources/teardown.py",
    "    if not judgement.verdict.allowed:\n        facts = with_costs(",
    "    if False:\n        facts = with_costs(",
)
TOLD = (
    Patch("sweepstack/onbox/runner/main.py", "            attempt.stopped = True\n", "            pass\n"),
    Patch("sweepstack/onbox/runner/ending.py", "        return self._told()\n", "        return False\n"),
)
"""A cell that its worker told to end counts as one that failed."""
WORKERS = "sweepstack/onbox/runner/workers.py"
PATIENT = (
    Patch(
        WORKERS,
        "        except OSError as error:\n"
        "            raise Fatal(6, f\"the journal's lock can't be taken: {error}\") from error\n",
        "        except OSError:\n            time.sleep(1)\n            return self._begin(seconds)\n",
    ),
    Patch(
        WORKERS,
        "        except OSError as error:\n"
        '            raise Fatal(6, f"the journal can\'t be read: {error}") from error\n',
        "        except OSError:\n            time.sleep(1)\n            return self._read_on()\n",
    ),
    Patch(
        WORKERS,
        "            except OSError as error:\n"
        "                raise Fatal(6, f\"the journal's lock can't be given back: {error}\") from error\n",
        "            except OSError:\n                pass\n",
    ),
)
"""A worker that can't write the journal waits until it can, and writes then that its cell has failed. At each place:
one that has the lock when the tier becomes read-only would end all the same, and nothing would tell the two apart."""


def _mutant(name: str, caught_by: str, *patches: Patch) -> Mutant:
    return Mutant(f"cluster: {name}", patches, (caught_by,))


CLUSTER = (
    # What cluster and host share is above the adapter: tests/unit/provider.
    _mutant(
        "another box is made beside one that the stack file names no more",
        "tests/unit/provider/test_leftover.py::test_a_renamed_box_is_not_rented_while_the_old_one_is_locked",
        Patch("sweepstack/provider/resources/want_gone.py", "    if not locked:\n", "    if True:\n"),
    ),
    _mutant(
        "a box moves to any address that is written",
        "tests/unit/provider/test_box_address.py::test_another_machine_is_refused_in_the_preview_and_by_the_update",
        Patch(
            "sweepstack/provider/resources/host_address_change.py",
            "    return before != after and at_addresses(before, after)\n",
            "    return False\n",
        ),
    ),
    _mutant(
        "what workers ask for is a property of the box",
        "tests/extensions/slurm/test_clusters.py::test_what_its_workers_ask_for_is_no_property_of_the_box",
        Patch(
            "sweepstack/profiles/resolve.py",
            "clusters.storage_input(config, profile, resources) if profile.scheduled else resources.as_inputs(),",
            "resources.as_inputs(),",
        ),
    ),
    # tests/extensions/slurm/test_must_hold.py
    _mutant("a box ends without a clearance", f"{HELD}::test_a_destroy_is_refused_until_all_is_verified", ANY_END),
    _mutant(
        "an up submits workers beside one that a restarted controller has",
        f"{HELD}::test_the_controller_and_the_login_node_restart_in_the_middle_of_an_array",
        Patch(
            f"{ONBOX}/platform.py",
            "missing = wanted - len(found.at_work) - len",
            "missing = wanted - len",
        ),
    ),
    *(
        _mutant(f"a cell that its worker told to end has failed ({what})", f"{HELD}::{test}", *TOLD)
        for what, test in (
            ("requeue", "test_a_job_is_requeued_or_cancelled_from_outside[requeue]"),
            ("scancel", "test_a_job_is_requeued_or_cancelled_from_outside[scancel]"),
            ("preemption", "test_a_preempted_job_goes_on_later"),
        )
    ),
    _mutant(
        "a box ends the jobs of its name, whose ever they are",
        f"{HELD}::test_another_user_s_job_of_the_same_name_is_none_of_ours",
        Patch(f"{ONBOX}/queue.py", '        f"--user={os.geteuid()}",\n', ""),
        Patch(
            f"{ONBOX}/jobs.py",
            '    owner = f"--user={os.geteuid()}"\n',
            '    owner = "--verbose"\n',
        ),
    ),
    *(
        _mutant(
            f"an answer of squeue that {what}",
            f"{HELD}::test_an_answer_of_squeue_that_is_none_is_never_an_end[{fault}]",
            patch,
        )
        for what, fault, patch in (
            (
                "failed is an empty queue",
                "silent",
                Patch(f"{ONBOX}/commands.py", "    if done.returncode != 0:\n", "    if False:\n"),
            ),
            (
                "does not read is left out",
                "strange",
                Patch(
                    f"{ONBOX}/queue.py",
                    "    return [_task(row) for row in rows if not _is_ended_array(row)]\n",
                    '    known = (row for row in rows if row["ArrayJobID"].isdigit())\n'
                    "    return [_task(row) for row in known if not _is_ended_array(row)]\n",
                ),
            ),
        )
    ),
    _mutant(
        "an array whose answer was lost is not looked for",
        f"{HELD}::test_an_answer_of_sbatch_that_is_lost_submits_nothing_twice",
        Patch(f"{ONBOX}/jobs.py", "        if new:\n", "        if False:\n"),
    ),
    _mutant(
        "no end of a worker is ever proved",
        f"{HELD}::test_a_drained_node_and_a_lost_node",
        Patch(
            f"{ONBOX}/worker_state.py",
            "    return found, why, listed\n",
            '    return "unknown" if found == "ended" else found, why, listed\n',
        ),
    ),
    _mutant(
        "a node that does not answer proves an end",
        f"{HELD}::test_a_node_that_was_given_up_and_runs_on_keeps_its_cell",
        Patch(
            f"{ONBOX}/worker_state.py",
            '    if found == "ended" and (silent := _silent_node(home, f"{job}.{tries}")):\n',
            '    if silent := "":\n',
        ),
    ),
    _mutant(
        "a try that Slurm has forgotten begins beside itself",
        f"{HELD}::test_the_controller_forgets_that_a_job_began",
        Patch(
            "sweepstack/onbox/runner/workers.py", "        folder.mkdir()\n", "        folder.mkdir(exist_ok=True)\n"
        ),
    ),
    _mutant(
        "a worker waits for the journal and writes a failure then",
        f"{HELD}::test_the_shared_tier_is_read_only_for_a_while",
        *PATIENT,
    ),
    _mutant(
        "a limit of submitted jobs is a refusal",
        f"{HELD}::test_a_full_submit_limit_leaves_the_rest_for_later",
        Patch(
            f"{ONBOX}/states.py",
            '_LIMITS = (_FULL, "submit limit", "maxsubmit", "job submit")',
            '_LIMITS = ("no limit is called so",)',
        ),
    ),
    _mutant(
        "a box is gone with its folder, whatever jobs it has",
        f"{HELD}::test_a_folder_removed_by_hand_ends_no_evidence",
        Patch(
            f"{ONBOX}/platform.py",
            '        return [*super()._at_work(native_id), *(f"job {task.name}" for task in queue.live(native_id))]\n',
            "        return super()._at_work(native_id)\n",
        ),
    ),
    # tests/extensions/slurm/test_long_runs.py
    _mutant(
        "what Slurm ended for want of memory counts for no cell",
        f"{LONG}::test_a_cell_that_needs_too_much_memory_ends_as_failed",
        Patch(
            "sweepstack/onbox/runner/worker.py",
            "                    if memory[worker]:\n",
            "                    if False:\n",
        ),
    ),
    _mutant(
        "the end of a worker's time is a failure of its cell",
        f"{LONG}::test_a_cell_that_is_longer_than_a_worker_s_time_goes_on_from_its_checkpoint",
        *TOLD,
    ),
    _mutant(
        "a worker whose clock is ahead has ended",
        f"{LONG}::test_clocks_are_apart",
        Patch(
            "sweepstack/onbox/runner/workers.py",
            "        if here is None:  # on another host\n",
            '        if str(record["began"]) < time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 120)):\n'
            '            return "it began long ago"\n'
            "        if here is None:  # on another host\n",
        ),
    ),
    _mutant(
        "a worker that is lost beside one that works is not replaced",
        "tests/extensions/slurm/test_top_up.py::test_a_job_without_the_node_of_its_worker_is_replaced_beside_one_that_works",
        Patch("sweepstack/provider/resources/queue.py", ' and not workers().get("lost")', ""),
    ),
    # tests/rented/test_cluster_nodes.py
    _mutant(
        "a job without the node of its worker is one that works",
        "tests/rented/test_cluster_nodes.py::test_the_node_of_the_worker_is_lost_for_good",
        Patch(
            f"{ONBOX}/standing.py",
            "        if is_lost(task, home):\n",
            "        if False:\n",
        ),
    ),
    _mutant(
        "a cell begins on a node before the failed one there was judged",
        "tests/rented/test_cluster_nodes.py::test_a_node_that_is_lost_for_good_by_the_documented_commands",
        Patch(
            "sweepstack/onbox/runner/main.py",
            "                if code:  # before its slot is free",
            "                if False:  # before its slot is free",
        ),
    ),
    _mutant(
        "a partition with too few nodes is taken",
        "tests/rented/test_cluster_nodes.py::test_the_loop_of_cells_over_two_nodes",
        Patch(
            f"{ONBOX}/request.py",
            "    if sum(nodes.count for nodes in fitting) < asked.nodes:\n",
            "    if False:\n",
        ),
    ),
)
