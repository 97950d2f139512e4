"""The resource provider plugin: a process of its own, which the engine calls over gRPC.

It never opens a profile.
"""
