"""The commands of `sweepctl`, one file or package each; `sweepstack.cli.verbs` finds them."""
