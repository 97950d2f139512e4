"""The records, the roster and the journal: what every other layer speaks of."""
