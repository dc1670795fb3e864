"""Numbers of jobs, written as ranges: `0-99,104`."""

from collections.abc import Iterable, Iterator


def write_ranges(numbers: Iterable[int]) -> str:
    """Write sorted unique numbers as ranges."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def read_ranges(text: str) -> Iterator[int]:
    """Yield the numbers of ranges written by `write_ranges` or Slurm, which may have a step (`0-8:4`) and `%5`."""
    for part in filter(None, text.partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))
