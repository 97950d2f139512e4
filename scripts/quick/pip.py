"""A quick `pip list` for the engine's language host, which asks for it once a preview or an up.

Pip answers after 0.3 s of a core, most of it imports; the names, versions and places alone are read in a tenth of that.
The launcher puts this folder on PYTHONPATH for the engine alone. Whatever else is asked or found here goes to the real
pip, as does every import of it. Has to run on any Python that an engine's child may start.
"""

import os
import sys


def _step_aside():
    """From now on `pip` is the real one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]


def _head(path):
    """The fields of a METADATA file, up to its description: name in lower case → value."""
    fields = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            name, colon, value = line.rstrip("\n").partition(": ")
            if not colon or name.startswith((" ", "\t")):
                if not line.strip():
                    break
                continue
            fields.setdefault(name.lower(), value)
    return fields


def _package(folder, name):
    """One row of pip's list, from a `.dist-info` folder. Raises OSError, KeyError, ValueError."""
    import json

    info = os.path.join(folder, name)
    head = _head(os.path.join(info, "METADATA"))
    row = {"name": head["name"], "version": head["version"], "location": folder, "installer": ""}
    if os.path.exists(os.path.join(info, "INSTALLER")):
        with open(os.path.join(info, "INSTALLER"), encoding="utf-8") as file:
            row["installer"] = file.read().strip()
    if os.path.exists(os.path.join(info, "direct_url.json")):
        with open(os.path.join(info, "direct_url.json"), encoding="utf-8") as file:
            origin = json.load(file)
        if origin.get("dir_info", {}).get("editable"):
            if not origin["url"].startswith("file:///") or "%" in origin["url"]:
                raise ValueError(origin["url"])
            row["editable_project_location"] = origin["url"][len("file://") :]
    return row


def listed():
    """All that is installed, as pip says it; None where something is not as it is in an ordinary environment."""
    found = {}
    try:
        for folder in sys.path:
            if not os.path.isdir(folder):
                continue
            for name in os.listdir(folder):
                if name.endswith((".egg-info", ".egg-link", ".egg")):
                    return None
                if name.endswith(".dist-info"):
                    row = _package(folder, name)
                    found.setdefault(row["name"].lower().replace("_", "-").replace(".", "-"), row)
    except (OSError, KeyError, ValueError):
        return None
    return [found[key] for key in sorted(found)]


if __name__ == "__main__":
    if sys.path[0] in ("", os.getcwd()):  # as pip itself does: what lies in the current folder is not installed
        del sys.path[0]
    _step_aside()
    rows = listed() if sys.argv[1:] == ["list", "-v", "--format", "json"] else None
    if rows is None:
        import runpy

        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    else:
        import json

        print(json.dumps(rows))
else:
    _step_aside()
    import importlib

    del sys.modules["pip"]
    sys.modules["pip"] = importlib.import_module("pip")
