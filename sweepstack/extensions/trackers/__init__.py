"""Trackers of cells, such as Weights & Biases: offline on the box, sent on by a pull."""
