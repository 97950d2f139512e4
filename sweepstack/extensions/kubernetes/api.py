"""All requests to the API server, by the official client. It decides nothing.

Objects are plain dicts in the API's own spelling: what is applied, read and shown is the same text. A read is sent
again when the network or the server fails. A write is sent once, and again only where the server turned it away (429);
when its answer is lost it raises OutcomeUnknown.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sweepstack.extensions.kubernetes.address import Address, completed, config_files
from sweepstack.onbox.common.errors import (
    ConfigError,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Unreachable,
    WrongAccount,
    one_line,
)
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import CALL_SECONDS, NotRetryable, answer_seconds, retried

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

MANAGER = "sweepstack"
"""Our field manager."""
CONNECT_SECONDS = 10.0
QUOTA, UNSAID = "exceeded quota", "must specify"
"""How the API server says that a quota is used up, by the status of a missing right; that a pod says too little."""
PAGE = 500
"""Objects in one answer to a list."""
KINDS: dict[str, tuple[str, str, bool]] = {
    "pvc": ("/api/v1", "persistentvolumeclaims", True),
    "pod": ("/api/v1", "pods", True),
    "event": ("/api/v1", "events", True),
    "serviceaccount": ("/api/v1", "serviceaccounts", True),
    "job": ("/apis/batch/v1", "jobs", True),
    "pv": ("/api/v1", "persistentvolumes", False),
    "node": ("/api/v1", "nodes", False),
    "namespace": ("/api/v1", "namespaces", False),
    "storageclass": ("/apis/storage.k8s.io/v1", "storageclasses", False),
    "priorityclass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "policy": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "policybinding": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", False),
    "localqueue": ("/apis/kueue.x-k8s.io/v1beta1", "localqueues", True),
    "access": ("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", False),
}
"""Kind, as our code calls it → the API's group, its name there, whether it lies in a namespace."""


Object = dict[str, Any]
Objects = list[Object]


class Exists(RequestRefused):
    """An object of this name is there already: nothing was made."""


class NoNamespace(Unreachable):
    """The cluster has no such namespace: nothing is known of what may lie in another cluster's."""


class NoContext(ConfigError, Unreachable):
    """The kubeconfig does not say how to ask this cluster: nothing is known of what is there."""


class OverQuota(RequestRefused, NoCapacity):
    """A quota of the namespace is used up: nothing was made."""


class Conflict(RequestRefused):
    """The object was changed meanwhile, or another manager owns a field: nothing was changed."""


class Cluster:
    """The API server behind one address, by the kubeconfig. Connects when it is first asked. Threads may share it."""

    def __init__(self, address: Address) -> None:
        self._asked = address
        self._lock = threading.Lock()
        self._ends = ""
        self._client: ApiClient | None = None
        self._whole: Address | None = address if address.namespace and address.context else None

    @property
    def address(self) -> Address:
        """Both parts. Reads the kubeconfig where one is left to it. Raises ConfigError."""
        if self._whole is None:
            self._whole = completed(self._asked)
        return self._whole

    def beside(self, namespace: str) -> Cluster:
        """Another namespace of the same cluster."""
        return Cluster(Address(namespace, self.address.context))

    @property
    def namespace(self) -> str:
        return self.address.namespace

    @property
    def kubectl(self) -> str:
        """How a person's command begins that asks this cluster, whatever the current context and namespace are."""
        return shlex.join(["kubectl", "--context", self.address.context, "-n", self.namespace])

    def __str__(self) -> str:
        return f"the namespace {self.address.namespace} of the cluster {self.address.context}"

    # -- whose it is

    def account(self) -> str:
        """`UID/NAMESPACE`: the namespace's own id, which no other cluster has. Asked each time: behind a name may be
        another cluster by now. Raises Unreachable, also where there is no such namespace: that is no proof of
        anything, unless this object saw it Terminating, which ends when nothing is in it; NotAuthorized."""
        found = self.get("namespace", self.namespace)
        if found is None and self._ends:
            return self._ends
        if found is None:
            raise NoNamespace(
                f"the cluster {self.address.context} has no namespace {self.namespace}: make it (kubectl create "
                f"namespace {self.namespace}), or write another overrides.kubernetes.namespace"
            )
        account = f"{found['metadata']['uid']}/{self.namespace}"
        self._ends = account if found["metadata"].get("deletionTimestamp") else ""
        return account

    def require(self, account: str) -> str:
        """This namespace's account, when it is `account`, or that is "". Raises WrongAccount, Unreachable."""
        here = self.account()
        if account not in ("", here):
            raise WrongAccount(
                f"{self} is the account {here}, and the box is of {account}: another cluster, or a namespace that was "
                "made again. Next: write overrides.kubernetes as it was, or set KUBECONFIG to that cluster's"
            )
        return here

    # -- objects

    def get(self, kind: str, name: str) -> Object | None:
        """The object; None when the server says that there is none of this name, or has the claim of another box."""
        status, said = self._read(self._path(kind, name))
        return None if status == 404 or (kind == "pvc" and name not in (claim_name(name), id_of(said))) else said

    def list(self, kind: str, labels: str = "", fields: str = "") -> Objects:
        """All objects that have these labels, and these fields. Raises Unreachable unless all of them came."""
        found: Objects = []
        more = ""
        for _ in range(1000):
            asked = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE), "continue": more}
            status, said = self._read(self._path(kind), {key: value for key, value in asked.items() if value})
            if status in (404, 410):
                raise Unreachable(f"{self._path(kind)}: {_words(said)}")
            found += said.get("items") or []
            more = str(said.get("metadata", {}).get("continue") or "")
            if not more:
                return found
        raise Unreachable(f"{self._path(kind)} has no end")

    def create(self, kind: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Makes it. Raises Exists; RequestRefused with the server's words; OutcomeUnknown."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self._write("POST", self._path(kind), body, query)

    def apply(self, kind: str, name: str, body: Mapping[str, Any]) -> Object:
        """Server-side apply: what others own stays. Idempotent. Raises Conflict, RequestRefused, OutcomeUnknown."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        return self._write("PATCH", self._path(kind, name), body, query, "application/apply-patch+yaml")

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> Object | None:
        """A merge patch; with `metadata.resourceVersion` only of that very version. None where it is gone. Raises
        Conflict, RequestRefused, OutcomeUnknown."""
        query = {"fieldManager": MANAGER}
        merge = "application/merge-patch+json"
        return self._write("PATCH", self._path(kind, name), body, query, merge, gone=True) or None

    def delete(self, kind: str, found: Object, *, grace: int | None = None, propagation: str = "Foreground") -> None:
        """Asks for the end of this very object, which may come later. Idempotent: one that is gone is a success."""
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        body: Object = {"propagationPolicy": propagation, "preconditions": {"uid": uid}}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        with contextlib.suppress(Conflict):  # there is another one of this name
            self._write("DELETE", self._path(kind, name), body, {}, gone=True)

    def may(self, verb: str, kind: str, *, subresource: str = "") -> bool:
        """Whether this user may do that here, as the server says. Reads only."""
        group, resource, inside = KINDS[kind]
        attributes = {
            "verb": verb,
            "group": group.split("/")[2] if group.startswith("/apis/") else "",
            "resource": resource,
            "subresource": subresource,
            **({"namespace": self.namespace} if inside else {}),
        }
        if kind == "namespace":  # a Role in a namespace may give the right to that one itself
            attributes |= {"namespace": self.namespace, "name": self.namespace}
        body: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body["spec"] = {"resourceAttributes": attributes}
        said = self._write("POST", self._path("access"), body, {})
        return bool((said.get("status") or {}).get("allowed"))

    def events(self, name: str) -> Objects:
        """What was told of the object of this name, oldest first. They are only words: none where they can't be had."""
        found: Objects = []
        with contextlib.suppress(PlatformError):
            found = self.list("event", fields=f"involvedObject.name={name}")
        return sorted(found, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))

    def exec_facts(self, pod: str) -> Object:
        """How another process opens a stream to a pod: `host`; `path`, of the pod, below it; `headers`, which hold the
        user's token: never in an argument; `ca`, `cert`, `key`: files, "" for none; `verify`: false only where the
        person's kubeconfig says so; `server_name`, `proxy`. Asks for a new token where the old one is over."""
        from kubernetes.client.rest import should_bypass_proxies

        client = self._connected()
        config = client.configuration
        headers: dict[str, str] = {}
        client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        files = {"ca": config.ssl_ca_cert, "cert": config.cert_file, "key": config.key_file}
        return {
            "host": str(config.host),
            "path": self._path("pod", pod),
            "headers": {str(name): str(value) for name, value in headers.items()},
            **{name: str(file or "") for name, file in files.items()},
            "verify": bool(config.verify_ssl),
            "server_name": str(config.tls_server_name or ""),
            "proxy": "" if should_bypass_proxies(config.host, config.no_proxy or "") else str(config.proxy or ""),
        }

    # -- requests

    def _path(self, kind: str, name: str = "") -> str:
        group, resource, inside = KINDS[kind]
        where = f"{group}/namespaces/{quote(self.namespace)}/{resource}" if inside else f"{group}/{resource}"
        name = claim_name(name) if kind == "pvc" else name
        return f"{where}/{quote(name)}" if name else where

    def _read(self, path: str, query: Mapping[str, str] | None = None) -> tuple[int, Object]:
        """What the API server says: 2xx, or that there is no such thing. Sent again as `HttpClient.read` is."""
        return retried(lambda: self._read_once(path, query or {}), Deadline(CALL_SECONDS), f"ask {self._who()}")

    def _read_once(self, path: str, query: Mapping[str, str]) -> tuple[int, Object]:
        status, reason, data = self._ask("GET", path, query)
        said = _parsed(data)
        if status == 403:
            raise NotAuthorized(f"{self._who()}: {_words(said) or reason}")
        if status >= 500:
            raise Unreachable(f"{self._who()} answers {status} {reason}: {_words(said)}")
        if status >= 300 and (status not in (404, 410) or said.get("kind") != "Status"):
            raise NotRetryable(f"{self._who()} answers {status} {reason}: {_words(said)}")
        return status, said

    def _write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        query: Mapping[str, str],
        content: str = "application/json",
        *,
        gone: bool = False,
    ) -> Object:
        """What the API server says: 2xx; empty where there is no such thing, which `gone` lets pass."""
        status, reason, data = retried(
            lambda: self._ask(method, path, query, body, content),
            Deadline(CALL_SECONDS),
            f"ask {self._who()} ({method} {path})",
            writes=True,
        )
        try:
            said = _parsed(data)
        except Unreachable as error:
            raise OutcomeUnknown(f"{self._who()}: {method} {path} was answered by {status}: {error}") from error
        if 200 <= status < 300 and "kind" in said:
            return said
        words = _words(said) or reason
        if status == 404 and gone and said.get("kind") == "Status":
            return {}
        if status == 409:
            raise (Exists if said.get("reason") == "AlreadyExists" else Conflict)(f"{self._who()}: {words}")
        if status < 400 or status >= 500:
            raise OutcomeUnknown(f"{self._who()}: {method} {path} was answered by {status}: {words}")
        raise (OverQuota if status == 403 and QUOTA in words else RequestRefused)(f"{self._who()}: {words}")

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> tuple[int, str, bytes]:
        """Sends one request. Raises Unreachable when it was not sent, or was a read; else OutcomeUnknown; RateLimited
        when the API server turned it away; NotAuthorized where it does not know who asks."""
        status, reason, data = self._sent(method, path, query, body, content)
        if status == 401:  # a token that was changed in its file, say: what was asked was not done
            with self._lock:
                self._client = None
            status, reason, data = self._sent(method, path, query, body, content)
        if status == 401:
            raise NotAuthorized(
                f"{self._who()}: {reason}: the login of the kubeconfig is over, or is none. Next: log in anew, as "
                f"you did at first (kubectl auth whoami --context {self.address.context} shows it); then the same "
                "command again"
            )
        return status, reason, data

    def _sent(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None, content: str
    ) -> tuple[int, str, bytes]:
        import urllib3.exceptions as lost
        from kubernetes.client.exceptions import ApiException

        client = self._connected()
        headers = {"Accept": "application/json", **({"Content-Type": content} if body is not None else {})}
        try:
            asked = client.param_serialize(
                method, path, query_params=list(query.items()), header_params=headers, body=body,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            seconds = answer_seconds(Deadline(CALL_SECONDS))
            answer = client.call_api(*asked, _request_timeout=(min(CONNECT_SECONDS, seconds), seconds))
            data = answer.read()
        except (lost.NewConnectionError, lost.ConnectTimeoutError, lost.ProxyError) as error:
            raise self._silent(error) from error
        except (lost.HTTPError, OSError, ApiException) as error:
            # ApiException: the client's own word for an error of TLS, which may come after all was sent, too
            if method == "GET":
                raise self._silent(error) from error
            raise OutcomeUnknown(f"{self._who()}: the answer to {method} {path} was lost: {one_line(error)}") from error
        if answer.status == 429:
            after = str(answer.headers.get("Retry-After") or "")
            raise RateLimited(
                f"{self._who()}: too many requests ({method} {path}); nothing was done",
                float(after) if after.isdigit() else None,
            )
        return int(answer.status), str(answer.reason or ""), bytes(data or b"")

    def _silent(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"{self._who()} can't be reached ({one_line(error)}). Next: kubectl --context {self.address.context} get "
            "--raw /readyz shows whether it answers you; then the same command again"
        )

    def _connected(self) -> ApiClient:
        """The client of this context. Raises NoContext."""
        with self._lock:
            if self._client is None:
                from kubernetes.client import Configuration
                from kubernetes.config import ConfigException, new_client_from_config

                configured, context = Configuration(), self.address.context
                configured.retries = False
                try:
                    self._client = new_client_from_config(
                        config_files(self.address),
                        context=context,
                        client_configuration=configured,
                        persist_config=False,
                    )
                except (ConfigException, ConfigError) as error:
                    raise NoContext(one_line(error)) from error
            return self._client

    def _who(self) -> str:
        return f"the cluster {self.address.context}"


def change(cluster: Cluster, kind: str, name: str, patch_of: Callable[[Object], Object | None]) -> Object | None:
    """Patches an object that others may be changing, and returns it; None where it is gone. `patch_of`: the patch for
    it as it is now; None where it needs none. Idempotent if that is. Raises Conflict where others never stop."""
    for last in (False, False, False, False, True):
        body = cluster.get(kind, name)
        if body is None or (patch := patch_of(body)) is None:
            return body
        version = {"resourceVersion": body["metadata"]["resourceVersion"]}
        try:
            return cluster.patch(kind, name, {**patch, "metadata": {**patch.get("metadata", {}), **version}})
        except Conflict:
            if last:
                raise
    raise AssertionError("unreachable")


def let_go(cluster: Cluster, kind: str, name: str, finalizer: str) -> None:
    """Takes this finalizer from an object. Idempotent. Raises what `change` raises."""

    def without(body: Object) -> Object | None:
        found = body["metadata"].get("finalizers") or ()
        left = [one for one in found if one != finalizer]
        return {"metadata": {"finalizers": left or None}} if finalizer in found else None

    change(cluster, kind, name, without)


def _parsed(data: bytes) -> Object:
    if not data:
        return {}
    try:
        said = json.loads(data)
    except ValueError as error:
        raise Unreachable(
            f"what answers is no API server: {one_line(data[:200].decode('utf-8', 'replace'))}"
        ) from error
    if not isinstance(said, dict):
        raise Unreachable("what answers is no API server")
    return said


def _words(said: Mapping[str, Any]) -> str:
    """What a Status says, in one line."""
    return one_line(str(said.get("message") or ""))


def labels_of(native_id: str, **more: str) -> str:
    """The selector of a box's objects."""
    return ",".join([f"{BOX}={native_id}", *(f"{PREFIX}{key}={value}" for key, value in more.items())])


ID = re.compile("(k8s-[0-9a-f]{16})-[0-9a-f]{8}")
"""A box's id: the name of its claim, which its tag alone decides, so that the server itself refuses a second one; and
the beginning of the claim's own id, so that a later box of this tag is another one."""


def claim_name(native_id: str) -> str:
    """The name of a box's claim; what is no id of a box is the name of a claim already."""
    return found[1] if (found := ID.fullmatch(native_id)) else native_id


def id_of(pvc: Object) -> str:
    """The id of the box whose claim this is; of one that took another's place, that one's (its label)."""
    known = str((pvc["metadata"].get("labels") or {}).get(BOX))
    return known if ID.fullmatch(known) else f"{pvc['metadata']['name']}-{pvc['metadata']['uid'][:8]}"


PREFIX = "sweepstack.dev/"
BOX = f"{PREFIX}box"
MANAGED = "app.kubernetes.io/managed-by"


def marks_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Its annotations of ours, without the prefix."""
    found = (body.get("metadata") or {}).get("annotations") or {}
    return {name[len(PREFIX) :]: str(value) for name, value in found.items() if name.startswith(PREFIX)}
