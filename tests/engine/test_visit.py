"""`sweepctl ssh`: a person's processes on a box do not belong to the box."""

from __future__ import annotations

import http.server
import os
import signal
import threading
from pathlib import Path

from tests.engine.commands import COMMAND_SECONDS, Result, assert_failed, ok
from tests.engine.harness import Stack
from tests.engine.test_stop import want


def execute(stack: Stack, *words: str) -> Result:
    """`sweepctl ssh`, with the stack named where it is not taken for the command's own."""
    return stack.run("sweepctl", "ssh", "--stack", stack.name, *words)


def sleepers(parent: int) -> list[int]:
    """The children of a process that sleep."""
    pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in pids if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")]


def test_exec_runs_in_the_boxs_folder_and_passes_everything_through(finished: Stack) -> None:
    """Folder, arguments, both outputs, and exit codes as they are; 255 where there is no box."""
    stack = finished
    done = ok(execute(stack, "box-0", "--", "sh", "-c", 'pwd; ls -d data; echo "$1" >&2', "sh", "a b"))
    assert done.out.splitlines() == [str(stack.box_dir("box-0")), "data"]
    assert done.err == "a b\n"
    assert execute(stack, "box-0", "--", "sh", "-c", "exit 42").rc == 42
    assert execute(stack, "box-0", "--", "sh", "-c", "kill -9 $$").rc == 137
    assert execute(stack, "box-0", "--", "no-such-command").rc == 127
    missing = execute(stack, "box-7", "--", "true")
    assert missing.rc == 255
    assert "box-0, box-1" in missing.err


def test_ssh_is_a_shell_there(finished: Stack) -> None:
    """On a terminal, as typed; its exit code is the answer."""
    shell = finished.terminal(
        "sweepctl", "ssh", "--stack", finished.name, "box-1", answers=[("does not wait", "pwd\nexit 7\n")]
    )
    assert shell.rc == 7, str(shell)
    assert str(finished.box_dir("box-1")) in shell.text


def test_a_persons_process_is_not_the_boxs(finished: Stack) -> None:
    """A stop does not wait for it or end it, `status` does not count it; nothing more can be started then."""
    stack = finished
    visitor = stack.start("sweepctl", "ssh", "--stack", stack.name, "box-0", "--", "sleep", "300")
    try:
        stack.wait_for(lambda: sleepers(visitor.pid), "the visitor's command")
        (sleeper,) = sleepers(visitor.pid)
        assert stack.processes()[stack.native_id("box-0")] == []
        want(stack, "box-0", "stopped")
        ok(stack.up())
        os.kill(sleeper, 0)
        refused = execute(stack, "box-0", "--", "true")
        assert refused.rc == 255
        assert "box-0 is stopped" in refused.err
        assert "want is set to running" in refused.err
    finally:
        for pid in sleepers(visitor.pid):
            os.kill(pid, signal.SIGTERM)
        assert visitor.wait(timeout=COMMAND_SECONDS) == 128 + signal.SIGTERM


def test_ports_are_here_already(finished: Stack) -> None:
    """Says so, and whether something answers; a renamed port is refused, and so is no port."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    try:
        assert "something answers" in ok(finished.sweepctl("ssh", "box-0", "--forward", str(port))).out
    finally:
        server.shutdown()
        server.server_close()
    assert "nothing answers there yet" in ok(finished.sweepctl("ssh", "box-0", "--forward", f"{port}:{port}")).out
    renamed = finished.sweepctl("ssh", "box-0", "--forward", "8080:6006")
    assert_failed(
        renamed, "its port 6006 is 6006 here already, and is not renamed to 8080", "leave the second port away"
    )
    assert_failed(finished.sweepctl("ssh", "box-0", "--forward", "many"), '"many" is no port; write 6006, or 8080:6006')
