"""Makes a stack file of a script, or of what another tool has (`sweepctl init NAME --from FILE`)."""
