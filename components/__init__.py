"""The resources of a sweep, for a Pulumi program."""
