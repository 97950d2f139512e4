"""Proving a file good: digest, structure, names and numbers, each in one pass over its bytes.

Runs in worker processes (`worker`, driven by `pool`), so nothing here imports more than the standard library, numpy
and, where asked for, safetensors or torch. A reader trusts nothing that a file says about itself.
"""
