"""Every write of the status board, by subject. `history.rebuild` follows each change that touches a service's state."""
