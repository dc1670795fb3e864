"""Domain functions of the status board.

`history.rebuild` follows each change that affects a service's state.
"""
