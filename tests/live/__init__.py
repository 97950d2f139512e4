"""The conformance suite against the real platforms: costs money, off unless it is asked for. docs/testing-live.md"""
