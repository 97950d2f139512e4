"""One folder for each adapter, with `connect()` in its `platform.py`; see `registry`."""
