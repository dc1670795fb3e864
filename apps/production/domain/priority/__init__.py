"""The priority of requests: score, queue order, manual moves, fair shares, expected start."""
