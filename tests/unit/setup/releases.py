"""A host of releases for the tests of set-up."""

from __future__ import annotations

import http.server
import threading

from tests.addresses import at_a_new_address


class Releases:
    """Files that a small HTTP server on the loopback hands out."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        releases = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = releases.files.get(self.path.rpartition("/")[2])
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = at_a_new_address(lambda: http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.base = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        """Nobody answers there any more."""
        self.server.shutdown()
        self.server.server_close()
