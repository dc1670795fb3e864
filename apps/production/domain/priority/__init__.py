"""Which request comes first: score, order of the queue, manual moves, fair shares,
expected start.
"""
