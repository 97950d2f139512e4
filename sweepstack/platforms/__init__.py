"""One folder for each adapter: `<adapter>/platform.py` has `connect()`; `registry.load_platform` calls it."""
