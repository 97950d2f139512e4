"""People sign approvals and receipts with their keys, and the signatures are checked."""
