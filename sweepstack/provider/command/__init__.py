"""The `command` package of Pulumi here: which plugin answers for it, and a stand-in for closed networks."""
