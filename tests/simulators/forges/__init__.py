"""A strict stand-in for the parts of GitHub's and GitLab's REST APIs that pipelines use: comments, statuses, issues.

Written from what both publish, and not from our clients; each rule names its source beside it. Looked up in stored
copies of: GitHub's OpenAPI document (npm @octokit/openapi 23.0.2, of April 2026) and github/docs; GitLab's own source
and doc/ (gitlabhq/gitlabhq); issue threads, for what a document leaves out.

- core.py: what both share, the faults, and the server.
- github.py, gitlab.py: the routes of each.

Where a forge would ignore something (an unknown field, a page of more than 100 rows), this refuses it: it is a mistake
of the client. Where a source leaves it open, the answer is the one that is hardest on a careless client.
"""

from __future__ import annotations

from tests.simulators.forges.core import JOB_TOKEN, TOKEN, Forge, Refused, Thing
from tests.simulators.forges.serve import serving

__all__ = ["JOB_TOKEN", "TOKEN", "Forge", "Refused", "Thing", "serving"]
