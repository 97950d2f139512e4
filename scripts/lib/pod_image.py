"""The image of pods of the tests' Kubernetes: Debian with Python and a shell.

No registry is asked: packages are fetched by apt, unpacked, and imported by a containerd of our own that ends then.
What it leaves is kept, and each node of a cluster begins with it, so that no test waits for an import.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from scripts.lib.apt import DEADLINE, OF_OPTION
from scripts.lib.console import Console, Step
from scripts.lib.errors import SetupError
from scripts.lib.places import Places
from scripts.lib.processes import run
from scripts.lib.wheels import put_in_place, scratch_folder

IMAGE = "localhost/sweepstack/box:1"
"""For pods: `python3`, `bash`, `tar`; HOME can be written by each user."""
PAUSE = "localhost/sweepstack/pause:1"
"""What holds a pod's namespaces: the same layer, which sleeps."""
HOME = "/home/box"
SAYS = "/etc/sweepstack-image"
_CONTAINS = (
    *("base-files", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "libc-bin", "mawk", "netbase"),
    *("procps", "python3", "sed", "tar", "util-linux"),
)
_NEEDLESS = re.compile(
    r"perl|debconf|^(dpkg|gawk|original-awk|install-info|usrmerge|usr-is-merged|init-system-helpers|mailcap|mime-support"
    r"|libdebian-installer4|libnewt.*|libslang2|libtextwrap1|libelogind0|libmpfr6|libgmp10|libsigsegv2|cdebconf)$"
)
"""What packages depend on for their installation alone, or where another one is there."""
_UNREAD = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/bash-completion")
_IMPORT = """
mount -t tmpfs tmpfs /run
containerd --config "$1" & holder=$!
for try in $(seq 300); do ctr --address /run/c.sock version >/dev/null 2>&1 && break; sleep 0.1; done
ctr --address /run/c.sock --namespace k8s.io images import "$2"
kill "$holder"
wait "$holder"
"""


def unusable() -> str:
    """Why this machine can't run a cluster at all, whatever is installed; "" where it can."""
    if not sys.platform.startswith("linux"):
        return "a cluster's nodes are namespaces and control groups of Linux"
    return "" if os.geteuid() == 0 else "namespaces, mounts and control groups take root"


def folder(places: Places) -> Path:
    """Where `tests/simulators/kubernetes` looks for it: a root folder of containerd. A change here makes another."""
    return places.cache / "pod-image" / hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def is_there(places: Places) -> bool:
    return (folder(places) / "io.containerd.metadata.v1.bolt").is_dir()


def make(places: Places, env: Mapping[str, str], console: Console, cancel: threading.Event) -> None:
    """Makes it in the cache, unless it is there. Seconds. Where it can't be made, says so and goes on: the tests that
    need it fail with the same words, all others run. Raises SetupError."""
    if is_there(places):
        return
    lacks = [name for name in ("apt-get", "dpkg-deb", "unshare") if shutil.which(name) is None]
    why = unusable() or ", ".join([*OF_OPTION["kubernetes"].missing(), *lacks])
    if why:
        console.say(f"  note: tests on Kubernetes will fail: there is no image for pods ({why})")
        return
    note = "Debian with Python, by apt, for tests on Kubernetes: 30 MB to download, 140 MB on disk"
    made = scratch_folder(folder(places).parent)
    try:
        with console.step("image of pods", note) as step:
            _unpack(made / "system", env, step, cancel)
            _write_image(made / "system", made / "image.tar")
            _import(made, env, cancel)
            put_in_place(made / "containerd", folder(places))
    except OSError as error:
        raise SetupError(f"making the image of pods: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _unpack(system: Path, env: Mapping[str, str], step: Step, cancel: threading.Event) -> None:
    """A root folder, as installed packages would leave it; no script of a package is run."""
    step.note = "asking apt"
    only = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    asked = ["apt-cache", "depends", "--recurse", *only, *_CONTAINS]
    said = run(asked, what="apt-cache", deadline=DEADLINE, cancel=cancel, env=env)
    names = sorted({line for line in said.splitlines() if re.match(r"\w", line) and not _NEEDLESS.search(line)})
    packages = system.parent / "packages"
    packages.mkdir()
    step.note = f"fetching {len(names)} packages"
    what = "fetching the packages of the image"
    run(
        ["apt-get", "download", "-o", "APT::Sandbox::User=root", *names],
        what=what, deadline=DEADLINE, cancel=cancel, env=env, cwd=packages,
    )  # fmt: skip
    for package in sorted(packages.glob("*.deb")):
        run(["dpkg-deb", "-x", package, system], what="dpkg-deb", deadline=DEADLINE, cancel=cancel, env=env)
    shutil.rmtree(packages)
    for name in ("bin", "sbin", "lib", "lib64"):  # packages of a Debian where these are links into /usr
        own = system / name
        if own.is_dir() and not own.is_symlink():
            shutil.copytree(own, system / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(own)
        own.symlink_to(f"usr/{name}")
    _furnish(system)


def _furnish(system: Path) -> None:
    for name in _UNREAD:
        shutil.rmtree(system / name, ignore_errors=True)
    for name, mode in (("dev", 0o755), ("proc", 0o755), ("sys", 0o755), ("tmp", 0o1777), (HOME.lstrip("/"), 0o777)):
        (system / name).mkdir(parents=True, exist_ok=True)
        (system / name).chmod(mode)
    awk = system / "usr/bin/awk"
    if not awk.exists():
        awk.symlink_to("mawk")
    users = (("root", "0", "/root", "/bin/bash"), ("nobody", "65534", "/nonexistent", "/usr/sbin/nologin"))
    lines = [f"{name}:x:{number}:{number}:{name}:{home}:{shell}\n" for name, number, home, shell in users]
    (system / "etc/passwd").write_text("".join(lines))
    (system / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (system / SAYS.lstrip("/")).write_text("The image of pods of sweepstack's tests.\n")


def _write_image(system: Path, file: Path) -> None:
    """Both images in one archive, as `docker save` writes it, of one layer."""
    layer = file.with_name("layer.tar")
    owner = ("--owner=0", "--group=0", "--numeric-owner", "--sort=name")
    subprocess.run(["tar", *owner, "-C", str(system), "-cf", str(layer), "."], check=True, timeout=DEADLINE)
    with layer.open("rb") as read:
        digest = hashlib.file_digest(read, "sha256").hexdigest()
    path = f"PATH=/usr/local/sbin:/usr/local/bin:{':'.join(('/usr/sbin', '/usr/bin', '/sbin', '/bin'))}"
    tags, configs = [], {}
    for name, command in ((IMAGE, ["/bin/bash"]), (PAUSE, ["/bin/sleep", "infinity"])):
        config = {
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Cmd": command, "Env": [path, f"HOME={HOME}", "LANG=C.UTF-8"], "WorkingDir": HOME},
            "rootfs": {"type": "layers", "diff_ids": [":".join(("sha256", digest))]},
        }
        text = json.dumps(config).encode()
        config_name = f"{hashlib.sha256(text).hexdigest()}.json"
        configs[config_name] = text
        tags.append({"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]})
    with tarfile.open(file, "w") as archive:
        for name, text in {**configs, "manifest.json": json.dumps(tags).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, BytesIO(text))
        archive.add(layer, arcname=f"{digest}/layer.tar")
    layer.unlink()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _import(made: Path, env: Mapping[str, str], cancel: threading.Event) -> None:
    config = made / "containerd.toml"
    # Without its part for Kubernetes: it starts at once, and asks for no network.
    config.write_text(
        f'version = 2\nroot = "{made / "containerd"}"\nstate = "/run/c"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "/run/c.sock"\n'
    )
    enter = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    what = "importing the image of pods"
    run([*enter, "sh", "-ec", _IMPORT, "sh", config, made / "image.tar"],
        what=what, deadline=120, cancel=cancel, env=env)  # fmt: skip
