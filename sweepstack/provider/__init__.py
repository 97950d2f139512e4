"""The resource provider plugin: its own process, spoken to by the engine over gRPC. It never opens a profile."""
