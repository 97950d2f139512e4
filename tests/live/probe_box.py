"""Runs on the box (Python 3.8, standard library): answers what it sees there, as one line of JSON. Sends no value of a
variable anywhere.

Its one argument is JSON: `word`, which marks are made of; `mark`, whether to write them (else they are looked for);
`tiers` and `caches`, name → path below the folder that it runs in; `own_key`, a variable; `hosts`, what a box
without mirrors reaches.
"""

import json
import os
import re
import socket
import subprocess
import sys

MARK = ".sweepstack-live-mark"
SECONDS = 10.0


def fs_of(path):
    """The mount point that a path lies in, and the kind of its file system; None where /proc does not say."""
    best = None
    real = os.path.realpath(path)
    with open("/proc/self/mounts") as file:
        for line in file:
            _, point, kind = line.split(" ")[:3]
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and (best is None or len(point) >= len(best[0])):
                best = (point, kind)
    return best


def tier(path, word, mark):
    found = {"there": os.path.isdir(path), "marked": False, "mount": None, "kind": None}
    if not found["there"]:
        return found
    fs = fs_of(path)
    if fs:
        found["mount"], found["kind"] = fs
    name = os.path.join(path, MARK)
    try:
        if mark:
            with open(name, "w") as file:
                file.write(word)
                file.flush()
                os.fsync(file.fileno())
        with open(name) as file:
            found["marked"] = file.read() == word
    except OSError:
        pass
    return found


def own_key(variable):
    """Whether process 1 has it; None where that can't be read."""
    try:
        with open("/proc/1/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return None
    return any(one.startswith(variable.encode() + b"=") and len(one) > len(variable) + 1 for one in words)


def cuda():
    """The newest CUDA that the driver takes."""
    try:
        said = subprocess.run(["nvidia-smi"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(rb"CUDA Version:\s*(\d+\.\d+)", said)
    return match.group(1).decode() if match else None


def writable(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK)


def reached(host):
    try:
        socket.create_connection((host, 443), SECONDS).close()
    except OSError:
        return False
    return True


def main():
    asked = json.loads(sys.argv[1])
    tiers = {name: tier(path, asked["word"], asked["mark"]) for name, path in asked["tiers"].items()}
    answer = {"tiers": tiers}
    if asked["mark"]:
        answer["own_key"] = own_key(asked["own_key"]) if asked["own_key"] else None
        answer["cuda"] = cuda()
        answer["caches"] = {name: writable(path) for name, path in asked["caches"].items()}
        answer["hosts"] = {host: reached(host) for host in asked["hosts"]}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
