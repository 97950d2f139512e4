"""The commands of `sweepctl`, by what they are for. Each imports what it needs when it runs, so that help is quick."""
