"""Pulumi's `command` package: chooses its plugin, and has a stand-in for closed networks."""
