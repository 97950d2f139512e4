"""What a person reads before a change: what it ends, keeps and costs, and whether it may go on."""
