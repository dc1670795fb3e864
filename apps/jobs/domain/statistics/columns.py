"""Arithmetic on the columns of statistics blocks."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

#: A column of a block, or of several blocks concatenated.
Column = npt.NDArray[np.int64]
Columns = dict[str, Column]

#: Up to this many groups are counted in an array; more are sorted.
MOST_CELLS = 4_000_000
_EXACT = 1 << 53


def encode_column(column: Column) -> tuple[Column, Column]:
    """Return the sorted distinct values of a column of small numbers.

    Also return the index of each row's value among them.
    """
    values = np.flatnonzero(np.bincount(column))
    table = np.zeros(int(values.max(initial=0)) + 1, np.int64)
    table[values] = np.arange(len(values))
    return values, table[column]


def codes_of(columns: Columns, names: Collection[str], rows: int) -> tuple[Column, int]:
    """Return a group number for each row and the number of groups.

    Rows with equal values in `names` have the same number; numbers follow the order of the values.
    """
    keys = np.zeros(rows, np.int64)
    size = 1
    for name in names:
        values, codes = encode_column(columns[name])
        count = max(len(values), 1)
        keys = keys * count + codes
        size *= count
        if size > MOST_CELLS:
            unique, keys = np.unique(keys, return_inverse=True)
            size = len(unique)
    unique, keys = encode_column(keys)
    return keys, len(unique)


def sum_by(columns: Columns, names: Collection[str], sums: Collection[str]) -> Columns:
    """Sum columns over rows with equal values in `names`; the result is sorted by them."""
    rows = len(columns[next(iter(sums))])
    codes, count = codes_of(columns, names, rows)
    first = first_rows(codes, count)
    result = {name: columns[name][first] for name in names}
    return result | {name: sum_by_code(codes, columns[name], count) for name in sums}


def first_rows(codes: Column, count: int) -> Column:
    """Return the index of the first row with each code."""
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def sum_by_code(codes: Column, column: Column, count: int) -> Column:
    """Return the exact sum of a column for each code."""
    if column.dtype.kind == "f":
        return np.bincount(codes, column, minlength=count)
    if len(column) * int(np.abs(column).max(initial=0)) < _EXACT:
        return np.rint(np.bincount(codes, column, minlength=count)).astype(np.int64)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, column)
    return sums


def sums_of_jobs(figures: Columns) -> Columns:
    """Return the sums of each job that follow from the available figures, except `jobs`."""
    sums: Columns = {}
    for name in ("core_seconds", "cpu_ms", "wall_seconds", "gpu_seconds", "energy_joules"):
        if name in figures:
            sums[name] = figures[name]
    if "queued_seconds" in figures:
        sums["started"] = (figures["queued_seconds"] >= 0).astype(np.int64)
        sums["queued_seconds"] = np.maximum(figures["queued_seconds"], 0)
    if "memory_mb" in figures:
        known = (figures["memory_mb"] >= 0) & (figures["requested_mb"] > 0)
        sums |= {name: np.where(known, figures[name], 0) for name in ("memory_mb", "requested_mb")}
    if "gpu_used_seconds" in figures:
        sums["gpu_used_seconds"] = np.maximum(figures["gpu_used_seconds"], 0)
        if "gpu_seconds" in figures:
            measured = figures["gpu_used_seconds"] >= 0
            sums["gpu_measured_seconds"] = np.where(measured, figures["gpu_seconds"], 0)
    return sums
