"""`python -m sweepstack.provider.command <engine address>`: starts the `command` plugin.

`provider/command/pulumi-resource-command` runs it.
"""

from __future__ import annotations

import os
import sys

from sweepstack.onbox.common.errors import ConfigError
from sweepstack.provider.command.select import official, with_key


def main() -> int:
    """Replaces this process by the official plugin, or by the stand-in. Exits with a message if there is no address, or
    if the plugin that the environment names can't be run."""
    if len(sys.argv) < 2:
        sys.exit("This is a Pulumi resource plugin: the engine starts it and hands it an address.")
    try:
        found = official(os.environ)
    except ConfigError as error:
        sys.exit(f"sweepstack: {error}")
    plugin = [str(found)] if found else [sys.executable, "-P", "-m", "sweepstack.provider.command.fallback_plugin"]
    argv = with_key([*plugin, *sys.argv[1:]], os.environ)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main())
