"""A drill: PostgreSQL is lost, and restored to a moment by pgbackrest."""
