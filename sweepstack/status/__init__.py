"""One picture of a sweep, from the engine, the evidence and the boxes."""
