"""Which request comes first: score, order of the queue, moves by hand, fair shares, expected start."""
