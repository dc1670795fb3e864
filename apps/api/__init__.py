"""Router, version and schema of the API, and idempotency keys."""
