"""Which backend's state this process works for: see `evidence.backends`, which the command line needs, too."""

from sweepstack.evidence.backends import backend_name as backend_name
