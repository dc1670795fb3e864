"""Domain functions of the status board.

Every change that affects a service's state is followed by `history.rebuild`.
"""
