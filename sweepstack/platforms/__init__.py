"""One adapter a platform: `<adapter>.py` with `connect() -> Platform`; `registry.load_platform` finds it by name."""
