"""Asks the API server from inside a pod, with the pod's own service account. Reads only.

Python 3.8 and the standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from sweepstack.onbox.common.errors import NotAuthorized, Unreachable

MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its token, if it has one."""
ANSWER_SECONDS = 5.0
MOST_BYTES = 32 << 20


def pods(namespace: str, labels: str) -> list[dict[str, Any]]:
    """All pods that have these labels: of one box, which come in one answer. Raises Unreachable, NotAuthorized."""
    said = get(f"/api/v1/namespaces/{quote(namespace)}/pods?{urlencode({'labelSelector': labels})}")
    if said is None:
        raise Unreachable("the API server does not know pods")
    return list(said.get("items") or ())


def node(name: str) -> dict[str, Any] | None:
    """The node of this name; None when the API server has none. Raises Unreachable, NotAuthorized."""
    return get(f"/api/v1/nodes/{quote(name)}")


def get(path: str) -> dict[str, Any] | None:
    """What the API server says; None for not found. Raises Unreachable, NotAuthorized."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        token = (MOUNT / "token").read_text(encoding="ascii").strip()  # read each time: it is renewed
    except OSError as error:
        raise NotAuthorized("this pod has no service account's token: resources.service_account names one") from error
    if not host:
        raise Unreachable("this process is in no pod of a cluster")
    try:
        context = ssl.create_default_context(cafile=str(MOUNT / "ca.crt"))
        line = http.client.HTTPSConnection(host, int(port), timeout=ANSWER_SECONDS, context=context)
        try:
            line.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
            answer = line.getresponse()
            data = answer.read(MOST_BYTES)
        finally:
            line.close()
        said = json.loads(data)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unreachable(f"the API server can't be asked: {error}") from error
    if not isinstance(said, dict):
        raise Unreachable("what answers is no API server")
    if answer.status == 404:
        return None
    words = " ".join(str(said.get("message") or answer.reason).split())
    if answer.status in (401, 403):
        raise NotAuthorized(f"the API server: {words}")
    if answer.status != 200:
        raise Unreachable(f"the API server answers {answer.status}: {words}")
    return said
