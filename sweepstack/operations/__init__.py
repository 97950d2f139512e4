"""What the provider and sweepctl both do to a box: look at it, stop it, start it, shut its host down."""
