"""Rental platforms on loopback: stateful, strict, with a virtual clock, a ledger of what bills, and faults on demand.

Written from the vendors' facts alone and never from our adapters, so that one misreading is not on both sides.
"""
