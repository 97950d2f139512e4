"""The commands of `sweepctl`, one file or package each; `sweepstack.cli.app` finds them."""
