"""Which backend's state this process works for: see `sweep.backends`, which the command line needs, too."""

from sweep.backends import backend_name as backend_name
