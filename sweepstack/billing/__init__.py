"""What a sweep costs: the ledger of everything ever rented, the budget, the clocks that platforms set."""
