"""The Torque adapter, also for its relatives that keep `server_priv/jobs` and accounting files."""
