"""Randomness that follows from a seed."""

from random import Random


def random_of(seed: int, *names: object) -> Random:
    """Return the source of randomness of one thing: the same for the same seed and names, whatever came before."""
    return Random("/".join(map(str, (seed, *names))))  # noqa: S311
