"""The domain of sweepstack: rosters, the queue on a box, evidence, and the check that may end a box.

Nothing in here knows the Pulumi engine, except `sweepstack.cli`, which runs it as a person would.
"""
