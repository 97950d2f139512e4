"""Which backend's state this process works for: see `evidence.backend_lease`, which the command line needs, too."""

from sweepstack.evidence.backend_lease import backend_name as backend_name
