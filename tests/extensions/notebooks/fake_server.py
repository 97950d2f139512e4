"""Stands in for Jupyter: takes what we give the real one, and answers only who has the token.

It reads the token as the real one does, from the file that JUPYTER_TOKEN_FILE names, and refuses one that others can
read. Run as `python -m jupyter_server --ServerApp.…=…`.
"""

import http.server
import os
import sys
import urllib.parse

given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
file = os.environ["JUPYTER_TOKEN_FILE"]
assert os.stat(file).st_mode & 0o777 == 0o600, oct(os.stat(file).st_mode)
assert os.stat(os.path.dirname(file)).st_mode & 0o777 == 0o700
with open(file) as handle:
    TOKEN = handle.read()
assert len(TOKEN) > 30
assert "JUPYTER_TOKEN" not in os.environ
print("the log of a server that says its token:", TOKEN, flush=True)
if os.environ.get("FAKE_FAILS"):
    sys.exit("it fails with " + TOKEN)


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        good = asked.get("token") == [TOKEN]
        self.send_response(200 if good else 403)
        self.end_headers()
        self.wfile.write(b"a notebook" if good else b"no")


server = http.server.HTTPServer((given["ServerApp.ip"], int(given["ServerApp.port"])), Answers)
server.serve_forever()
