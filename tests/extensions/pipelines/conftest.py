from __future__ import annotations

from tests.extensions.pipelines.ci_jobs import forge, project

__all__ = ["forge", "project"]
