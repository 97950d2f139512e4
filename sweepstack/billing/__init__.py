"""What a sweep costs: the ledger, the budget, and the deadlines that platforms set."""
