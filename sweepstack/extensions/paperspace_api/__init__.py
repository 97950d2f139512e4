"""The adapter for Paperspace's API."""

from sweepstack.platforms.common.keys import Key

KEY = Key("paperspaceApiKey", "PAPERSPACE_API_KEY", "Paperspace")
