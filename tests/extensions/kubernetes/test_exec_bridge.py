"""The bridge to a command in a pod: bytes, exit codes, and what a connection can do to it."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from sweepstack.extensions.kubernetes import channel
from tests.extensions.kubernetes.exec_server import TOKEN, V4, ExecServer, until


@pytest.fixture
def server() -> Iterator[ExecServer]:
    made = ExecServer()
    yield made
    made.close()
    assert made.faults == []


def start(server: ExecServer, *argv: str, code: str = "", **facts: Any) -> subprocess.Popen[bytes]:
    """The bridge to `argv`. `code`: runs before it, in its process."""
    words = [("stdin", "true"), ("stdout", "true"), *([("tty", "true")] if facts.get("terminal") else [])]
    query = urlencode([*words, *(("command", word) for word in argv)])
    known = {"host": server.host, "path": f"/api/v1/namespaces/n/pods/p/exec?{query}", "own": True, **facts}
    known = {"headers": {"authorization": TOKEN}, **known}
    source, sink = os.pipe()
    os.write(sink, json.dumps(known).encode())
    os.close(sink)
    ends = [facts.pop("stream")] * 3 if "stream" in facts else [subprocess.PIPE] * 3
    bridge = channel.bridge().replace("sys.exit(main", f"{code}\nsys.exit(main") if code else channel.bridge()
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", bridge, str(source)],
            stdin=ends[0],
            stdout=ends[1],
            stderr=ends[2],
            pass_fds=(source,),
        )
    finally:
        os.close(source)


def run(server: ExecServer, *argv: str, given: bytes = b"", **facts: Any) -> tuple[int, bytes, bytes]:
    process = start(server, *argv, **facts)
    out, err = process.communicate(given, timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("piece", [0, 1, 7, 4096])
def test_streams_and_code_are_the_commands(server: ExecServer, piece: int) -> None:
    server.piece = piece
    text = "cat; echo error >&2; exit 7"
    given = bytes(range(256)) * 40
    assert run(server, "sh", "-c", text, given=given) == (7, given, b"error\n")
    assert run(server, "true") == (0, b"", b"")
    assert run(server, "sh", "-c", "kill -9 $$")[0] == 137


@pytest.mark.parametrize("own", [True, False])
def test_much_data_goes_both_ways(server: ExecServer, own: bool) -> None:
    given = os.urandom(24 << 20)
    code, out, _ = run(server, "cat", given=given, own=own)
    assert code == 0
    assert hashlib.sha256(out).digest() == hashlib.sha256(given).digest()


def test_what_is_not_taken_is_not_read(server: ExecServer) -> None:
    process = start(server, "sh", "-c", "head -c 200000000 /dev/zero; echo done >&2")
    try:
        time.sleep(1.5)
        memory = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
        assert int(memory) * os.sysconf("SC_PAGE_SIZE") < 80 << 20
        out, err = process.communicate(timeout=60)
        assert (len(out), err, process.returncode) == (200_000_000, b"done\n", 0)
    finally:
        process.kill()


def test_input_that_is_not_taken_is_not_read(server: ExecServer) -> None:
    process = start(server, "sh", "-c", "sleep 1; wc -c")
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    sent = 0
    ends = time.monotonic() + 0.7
    while time.monotonic() < ends:
        try:
            sent += os.write(process.stdin.fileno(), bytes(1 << 16))
        except BlockingIOError:
            time.sleep(0.02)
    assert sent < 24 << 20
    out, _ = process.communicate(timeout=30)
    assert int(out) == sent


def test_end_of_input_is_not_the_end(server: ExecServer) -> None:
    assert run(server, "sh", "-c", "cat >/dev/null; sleep 0.3; echo late") == (0, b"late\n", b"")


def test_old_servers_cannot_be_told_of_it(server: ExecServer) -> None:
    server.protocols = (V4,)
    process = start(server, "sh", "-c", "head -c 3; exit 4", own=False)
    out, _ = process.communicate(b"abcdef", timeout=30)
    assert (process.returncode, out) == (4, b"abc")
    process = start(server, "cat")
    process.communicate(b"", timeout=5)  # ours alone: nothing more is wanted of the command, which sees its input end
    until(lambda: server.commands[-1].poll() is not None)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((403, 'pods "p" is forbidden: User "u" cannot create resource "pods/exec"'), "cannot create resource"),
        ((404, 'pods "p" not found'), "answers 404: pods"),
        ((500, "error dialing backend"), "answers 500: error dialing backend"),
        ((302, "over there"), "answers 302: over there"),  # the token is for this server alone
    ],
)
def test_refusal_is_told_in_one_line(server: ExecServer, refusal: tuple[int, str], words: str) -> None:
    server.refuses = refusal
    code, out, err = run(server, "true")
    assert (code, out, err.count(b"\n")) == (255, b"", 1)
    assert words in err.decode()


def test_wrong_token_is_told(server: ExecServer) -> None:
    code, _, err = run(server, "true", headers={"authorization": "Bearer other"})
    assert (code, b"answers 401: Unauthorized" in err) == (255, True)


def test_no_server_is_told(server: ExecServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    code, _, err = run(server, "true", host=f"https://127.0.0.1:{port}")
    assert (code, err.count(b"\n")) == (255, 1)
    assert b"can't be reached" in err


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n", b""])
def test_what_is_no_api_server_is_told(server: ExecServer, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        process = start(server, "true", host=f"http://127.0.0.1:{door.getsockname()[1]}")
        connection, _ = door.accept()
        connection.recv(1 << 16)
        connection.sendall(answer)
        connection.close()
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err.count(b"\n")) == (255, 1)
    assert b"the API server at 127.0.0.1:" in err


def test_a_container_that_just_begins_is_waited_for_with_the_input(server: ExecServer) -> None:
    given = os.urandom(300_000)
    server.late = 3
    assert run(server, "sh", "-c", "cat; exit 7", given=given, patience=30) == (7, given, b"")
    assert len(server.asked) == 4


@pytest.mark.parametrize("patience", [0, 0.3])
def test_a_container_that_does_not_begin_is_told(server: ExecServer, patience: float) -> None:
    server.late = 10**6
    code, out, err = run(server, "cat", given=b"x", patience=patience)
    assert (code, out, err.count(b"\n"), b"container not found" in err) == (255, b"", 1, True)
    assert (len(server.asked) > 1) is (patience > 0)


def test_a_command_that_began_is_not_run_again(server: ExecServer) -> None:
    server.late, server.began = 10**6, b"one line\n"
    code, out, err = run(server, "cat", given=b"x", patience=30)
    assert (code, out, len(server.asked)) == (255, b"one line\n", 1)
    assert b"container not found" in err


def test_no_such_program_is_told(server: ExecServer) -> None:
    code, _, err = run(server, "no-such-program")
    assert code == 255
    assert b'"no-such-program": executable file not found' in err


def test_cut_is_told_and_ends_the_input(server: ExecServer) -> None:
    process = start(server, "sh", "-c", "echo here; cat")
    assert process.stdout is not None
    assert process.stdout.read(5) == b"here\n"
    server.cut()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.count(b"\n")) == (255, 1)
    assert b"the connection to the pod broke" in err
    until(lambda: server.commands[-1].poll() is not None)


def test_own_words_go_to_the_report(server: ExecServer, tmp_path: Path) -> None:
    report = tmp_path / "said"
    code, _, err = run(server, "no-such-program", report=str(report))
    assert (code, err) == (255, b"")
    assert "executable file not found" in report.read_text()


def test_dead_server_is_given_up(server: ExecServer) -> None:
    server.mute = True
    code = "import sweepstack.extensions.kubernetes.exec_bridge as b; b.PING_SECONDS, b.DEAD_SECONDS = 0.5, 2.0"
    begun = time.monotonic()
    process = start(server, "true", code=code)
    assert process.stderr is not None
    assert b"nothing came from the API server for" in process.stderr.read()
    assert (process.wait(), time.monotonic() - begun < 15) == (255, True)
    process.communicate()


def test_silent_command_is_not_a_dead_server(server: ExecServer) -> None:
    code = "import sweepstack.extensions.kubernetes.exec_bridge as b; b.PING_SECONDS, b.DEAD_SECONDS = 0.3, 1.0"
    process = start(server, "sh", "-c", "sleep 3; echo done", code=code)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"done\n", b"")
    assert server.pings >= 2


def test_term_ends_it_at_once(server: ExecServer) -> None:
    process = start(server, "cat")
    until(lambda: bool(server.commands))
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(5)
    assert time.monotonic() - begun < 1
    until(lambda: server.commands[-1].poll() is not None)  # its input ended
    process.communicate()


def test_the_token_is_in_no_argument(server: ExecServer) -> None:
    process = start(server, "cat")
    until(lambda: bool(server.commands))
    for name in ("cmdline", "environ"):
        assert b"a-token" not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    process.communicate(b"", timeout=10)


def test_terminal_is_passed_on_with_its_size(server: ExecServer) -> None:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    before = termios.tcgetattr(slave)
    process = start(server, "sh", "-c", "read line; echo got $line; exit 3", terminal=True, own=False, stream=slave)
    until(lambda: {"Width": 100, "Height": 30} in server.sizes)
    assert not termios.tcgetattr(slave)[3] & termios.ECHO  # the keys are the command's
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process.send_signal(signal.SIGWINCH)
    until(lambda: {"Width": 120, "Height": 40} in server.sizes)
    os.write(master, b"word\n")
    seen = b""
    while b"got word" not in seen:
        seen += os.read(master, 4096)
    assert process.wait(10) == 3
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_proxy_is_gone_through(server: ExecServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        seen: list[bytes] = []
        threading.Thread(target=_proxy, args=(door, server.port, seen), daemon=True).start()
        proxy = f"http://me:a%20word@127.0.0.1:{door.getsockname()[1]}"
        assert run(server, "cat", given=b"through", proxy=proxy) == (0, b"through", b"")
    assert seen[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.".encode())
    assert b"Proxy-Authorization: Basic bWU6YSB3b3Jk" in seen[0]


def _proxy(door: socket.socket, port: int, seen: list[bytes]) -> None:
    near, _ = door.accept()
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += near.recv(1)
    seen.append(head)
    near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    far = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=_pump, args=(near, far), daemon=True).start()
    _pump(far, near)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    while data := source.recv(1 << 16):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    paths = (str(folder / "cert.pem"), str(folder / "key.pem"))
    asked = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=cluster", "-addext", "subjectAltName=DNS:cluster.test", "-days", "2"]
    subprocess.run([*asked, *names, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def test_tls_is_checked(certificate: tuple[str, str]) -> None:
    server = ExecServer(certificate)
    try:
        given = os.urandom(3 << 20)
        known = {"ca": certificate[0], "server_name": "cluster.test"}
        assert run(server, "cat", given=given, **known) == (0, given, b"")
        assert run(server, "true", verify=False)[0] == 0
        for wrong in ({"ca": certificate[0]}, {"server_name": "cluster.test"}):
            code, _, err = run(server, "true", **wrong)
            assert (code, b"CERTIFICATE_VERIFY_FAILED" in err) == (255, True)
    finally:
        server.close()
