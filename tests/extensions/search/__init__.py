"""Tests of the extension `search`."""
