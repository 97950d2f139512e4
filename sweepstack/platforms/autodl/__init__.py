"""AutoDL's account. Its machines are hosts that a person rents."""
