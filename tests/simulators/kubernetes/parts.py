"""How each program of a cluster is started: its words, and its configuration as a file.

Times are shorter than a real cluster's, so that tests of faults take seconds: a node that is silent for
`NODE_SILENT_SECONDS` is NotReady (50 s by default elsewhere), and its pods are given up `TOLERATED_SECONDS` later
(300 s by default elsewhere).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from scripts.lib.pod_image import PAUSE

NODE_SILENT_SECONDS = 10
TOLERATED_SECONDS = 5
CONTROL = "172.20.0.1"
"""The control plane's address, as nodes know it."""
SERVICE = "10.96.0.1"
"""The address of the API server's own service, as pods know it; it is the control plane's, too: nothing translates."""
SERVICES = "10.96.0.0/16"
PORT = 443
PROGRAM = "/mnt/program/kubernetes"
PKI = "/mnt/keep/pki"
SOCKET = "/run/containerd/containerd.sock"

ETCD = (
    *("etcd", "--data-dir=/mnt/etcd", "--listen-client-urls=http://127.0.0.1:2379", "--logger=zap", "--log-level=warn"),
    *("--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380"),
    *("--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380"),
)


def api_server(more: Sequence[str] = ()) -> list[str]:
    """`more`: options besides."""
    return [
        *(PROGRAM, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--secure-port={PORT}"),
        *("--bind-address=0.0.0.0", f"--advertise-address={CONTROL}", f"--service-cluster-ip-range={SERVICES}"),
        *(f"--tls-cert-file={PKI}/api.crt", f"--tls-private-key-file={PKI}/api.key", f"--client-ca-file={PKI}/ca.crt"),
        *(f"--service-account-key-file={PKI}/accounts.crt", f"--service-account-signing-key-file={PKI}/accounts.key"),
        *("--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=Node,RBAC"),
        *("--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false"),
        *(f"--kubelet-client-certificate={PKI}/api-client.crt", f"--kubelet-client-key={PKI}/api-client.key"),
        *(f"--kubelet-certificate-authority={PKI}/ca.crt", "--kubelet-preferred-address-types=InternalIP"),
        *(f"--default-not-ready-toleration-seconds={TOLERATED_SECONDS}", "--anonymous-auth=true"),
        *(f"--default-unreachable-toleration-seconds={TOLERATED_SECONDS}", *more),
    ]


CONTROLLERS = (
    *(PROGRAM, "kube-controller-manager", f"--kubeconfig={PKI}/controllers.kubeconfig", "--leader-elect=false"),
    *(f"--service-account-private-key-file={PKI}/accounts.key", f"--root-ca-file={PKI}/ca.crt"),
    *(f"--cluster-signing-cert-file={PKI}/ca.crt", f"--cluster-signing-key-file={PKI}/ca.key"),
    *("--use-service-account-credentials=true", "--bind-address=127.0.0.1", "--profiling=false"),
    *(f"--node-monitor-grace-period={NODE_SILENT_SECONDS}s", "--node-monitor-period=1s", "--node-eviction-rate=100"),
    *("--pvclaimbinder-sync-period=2s", "--kube-api-qps=200", "--kube-api-burst=400"),
)
SCHEDULER = (
    *(PROGRAM, "kube-scheduler", f"--kubeconfig={PKI}/scheduler.kubeconfig", "--leader-elect=false"),
    *("--bind-address=127.0.0.1", "--profiling=false"),
)
CONTAINERD = ("containerd", "--config=/mnt/{node}/containerd.toml")


def kubelet(node: str, address: str) -> list[str]:
    return [
        *(PROGRAM, "kubelet", f"--config=/mnt/{node}/kubelet.json", f"--kubeconfig={PKI}/{node}.kubeconfig"),
        *(f"--hostname-override={node}", f"--node-ip={address}"),
    ]


_LIMITED = ("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree")
"""What a kubelet ends pods for when little of it is left. Here it does not: a full disk is the machine's own."""


def kubelet_config(node: str, address: str) -> str:
    """JSON, which is YAML. What a limit of memory does needs no slices of quality: kubelet does not make any."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{PKI}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "address": address,
            "healthzBindAddress": "127.0.0.1",
            "readOnlyPort": 0,
            "tlsCertFile": f"{PKI}/{node}-serving.crt",
            "tlsPrivateKeyFile": f"{PKI}/{node}-serving.key",
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "volumePluginDir": "/var/lib/kubelet/plugins-of-volumes",
            "resolvConf": "",
            "clusterDomain": "cluster.local",
            "evictionHard": dict.fromkeys(_LIMITED, "0%"),
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "serializeImagePulls": False,
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
            "eventRecordQPS": 0,
        },
        indent=1,
    )


def containerd_config() -> str:
    """`restrict_oom_score_adj`: a machine of the tests may lack CAP_SYS_RESOURCE, and no pod could start."""
    return f"""
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/var/lib/cni/conf"
"""


def network_config(pods: str) -> str:
    """`pods`: the range of this node's pods. All pods and nodes of the cluster reach a pod's address as it is."""
    ways = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": ways}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})
