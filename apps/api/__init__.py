"""Router, version, schema and idempotency keys of the API."""
