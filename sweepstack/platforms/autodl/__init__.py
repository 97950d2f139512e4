"""AutoDL's account, and what its API says of hosts that a person rents there."""
