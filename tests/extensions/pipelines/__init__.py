"""The pipelines that `sweepctl ci` writes, run as they stand."""
