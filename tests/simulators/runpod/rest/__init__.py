"""The REST API, version 2, by what it is asked for."""
