"""AutoDL's account, and what its API says of hosts that a person rents there."""

from sweepstack.platforms.common.keys import Key

KEY = Key("autodlToken", "AUTODL_TOKEN", "AutoDL")
