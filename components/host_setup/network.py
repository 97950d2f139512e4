"""The set-up step that checks a host's proxy and mirrors before a queue relies on them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from components.host_setup.steps import Step
from sweepstack.channel.interpreters import PYTHON, finding

_LOOK = r"""
import json, os, subprocess, sys, urllib.error, urllib.request
from urllib.parse import urlsplit
told, proxy = json.loads(sys.argv[1]), "none"
urls = {
    name: value if "://" in value else "https://" + value
    for name, value in sorted(told.get("env", {}).items())
    if "://" in value or name.endswith("_DOMAIN")
}
if told.get("proxy_on"):
    proxy = "for single calls"
if told.get("proxy_always"):
    script = "{ %s\n} >&2 || exit\nexec env -0" % told["proxy_on"]
    done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=30)
    if done.returncode:
        sys.exit("the proxy's line failed with %d. Fix it, or overrides: network: {proxy: false}" % done.returncode)
    found = dict(one.decode("utf-8", "replace").partition("=")[::2] for one in done.stdout.split(b"\0") if one)
    on = {name: found[name] for name in ("http_proxy", "https_proxy") if found.get(name)}
    proxy = "on" if on else "its line sets none"
    past = ["127.0.0.1", "localhost", *(urlsplit(url).hostname or "" for url in urls.values())]
    os.environ.update(on, no_proxy=",".join(past))
print("proxy=" + proxy)
for name, url in urls.items():
    try:
        urllib.request.urlopen(url, timeout=15).close()
        said = "answers"
    except urllib.error.HTTPError:
        said = "answers"
    except (OSError, ValueError) as error:
        said = "does not answer: %s" % error
    print("route_%s=%s" % (name.lower(), said))
"""
NAME, SECONDS = "network", 180


def network(told: Mapping[str, Any], python: str = PYTHON) -> Step:
    """`told`: what the queue is told of the network (`env`, `proxy_on`, `proxy_always`). Facts: proxy (on, none, for
    single calls, or that its line sets none), and of each mirror whether it answers. Fails where the proxy's line
    does; a mirror that is away is a fact, since the job may not need it."""
    words = f'{finding(python)}; "$q" - {shlex.quote(json.dumps(dict(told), sort_keys=True))}'
    return Step(NAME, words, _LOOK, "looking at its way to the world", SECONDS)
