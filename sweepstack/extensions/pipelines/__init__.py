"""Pipelines of GitHub and GitLab for the stacks of a repository (`sweepctl ci`)."""
