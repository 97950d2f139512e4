"""SDKs of other languages, made from the plugin's schema by the engine's own generators. Nothing of them is kept."""
