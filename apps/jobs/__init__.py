"""Job records from accounting, proofs of their requests, queue counts, and totals."""
