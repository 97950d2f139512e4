"""A sweep as it stands: its state and evidence, a look at its boxes, the files of its cells."""
