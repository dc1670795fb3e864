"""Job records from accounting, proofs of requests, queue counts, and totals."""
