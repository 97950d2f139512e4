"""Trackers of cells (Weights & Biases, MLflow, TensorBoard): offline on the box, sent on by a pull."""
