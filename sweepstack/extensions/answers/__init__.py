"""What is asked of two cells: what differs between them (`sweepctl results --compare A B`)."""
