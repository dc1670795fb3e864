"""The adapter for Torque and related systems with `server_priv/jobs` and accounting files."""
