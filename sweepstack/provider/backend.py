"""Names the backend whose state this process works for: `evidence.backend_lease` has the code.

The CLI uses that code, too.
"""

from sweepstack.evidence.backend_lease import backend_name as backend_name
