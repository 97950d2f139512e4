"""Runs the cells of one box and seals what they leave. Shipped to the box as a folder: Python 3.8, standard library."""
