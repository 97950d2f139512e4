"""What sweepctl and the provider both do to a box, and the look at a whole sweep."""
