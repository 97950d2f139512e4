"""The startup script that lets a person's SSH key in: Paperspace's API has no SSH keys.

It also makes the folders of the box's tiers, once, with the key: a create that was cancelled makes none, and a later
boot must not put empty ones in the place of those that are lost. Its name has the digest of its text, which Paperspace
does not show again: a script that differs has another name.
"""

from __future__ import annotations

import hashlib
import re

from sweepstack.onbox.common.errors import RequestRefused

ROOT = "/home/paperspace/sweepstack"
"""The box's folder: `paperspace` may write there, and it lies on the machine's one disk."""
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/=]+")
_SCRIPT = """\
#!/bin/sh
# Written by sweepstack. Lets this SSH key in as the user paperspace, at every boot; run twice, it changes nothing more.
set -eu
keys=/home/paperspace/.ssh/authorized_keys
mkdir -p /home/paperspace/.ssh
touch "$keys"
chown -R paperspace:paperspace /home/paperspace/.ssh
chmod 700 /home/paperspace/.ssh
chmod 600 "$keys"
if ! grep -qF '{key}' "$keys"; then
  mkdir -p {root}/data {root}/scratch {root}/mnt/durable
  chown -R paperspace:paperspace {root}
  printf '\\n%s\\n' '{key}' >> "$keys"
fi
"""


def login_script(public_key: str) -> tuple[str, str]:
    """Name and text of the script for this public key. Raises RequestRefused for what can't be a key."""
    key = " ".join(public_key.split()[:2])  # without its comment
    if not _KEY.fullmatch(key):
        raise RequestRefused("your public SSH key does not read as `<type> <key>`: `ssh-keygen -t ed25519` makes one")
    text = _SCRIPT.format(key=key, root=ROOT)
    return f"sweepstack-{hashlib.sha256(text.encode()).hexdigest()[:16]}", text
