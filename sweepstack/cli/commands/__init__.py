"""The verbs of `sweepctl`, a file or a package each: `command` has the options. `sweepstack.cli.verbs` finds them."""
