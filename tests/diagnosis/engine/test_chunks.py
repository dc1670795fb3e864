"""Logs in chunks: what is found in them is what a reader who takes line after line finds,
with place and number.
"""

import re
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.evidence import catalogue
from apps.diagnosis.engine.evidence.catalogue import HITS_PER_END, KnownErrorCatalogue, built_in
from apps.diagnosis.engine.formats import chunks
from apps.diagnosis.engine.formats.chunks import LineNumbers, line_starts, newlines
from apps.diagnosis.engine.formats.plain_lines import clean
from apps.diagnosis.enums import Role

ANY = built_in().patterns[0]
PATTERNS = (
    replace(ANY, id="BROKEN", regex=r"broken (?P<what>\w+)", role=Role.CAUSE),
    replace(ANY, id="PIPE", regex=r"pipe$", role=Role.SYMPTOM),
    replace(ANY, id="HARMLESS", regex=r"^harmless", role=Role.NOISE),
    replace(ANY, id="MARKED", regex=r"pipe \d", role=Role.CAUSE, passive=True),
    replace(ANY, id="NOVA", regex=r"nova", role=Role.CAUSE, experiment="nova"),
    replace(ANY, id="SPREAD", regex=r"spread\s+over", role=Role.CAUSE),
)
LINES = (
    b"",
    b"fine",
    b"a longer line that says nothing of note",
    b"broken pipe",
    b"broken pipe 7",
    b"nova is broken too",
    b"harmless broken pipe",
    b"harmless pipe 8",
    b"\x1b[31mbroken \x1b[0mpipe",
    b"10 %\r20 %\rbroken disk",
    b"fine\r",
    b"bro\x00ken pipe",
    b"spread",
    b"over",
    b"spread over",
    b"\xff\xe9 broken \xff",
    b"z" * 150 + b" broken pipe",
)
CATALOGUE = KnownErrorCatalogue(PATTERNS, "")


def read_line_by_line(data: bytes, offset: int, first: int | None, experiment: str):
    """Return id, number, offset and text of each hit, in order."""
    hits = defaultdict(list)
    for row, raw in enumerate(data.split(b"\n")):
        line = clean(raw)
        matching = [
            pattern
            for pattern in PATTERNS
            if pattern.experiment in {"", experiment} and re.search(pattern.regex.encode(), line)
        ]
        if any(pattern.role is Role.NOISE for pattern in matching):
            matching = [
                pattern for pattern in matching if pattern.passive or pattern.role is Role.NOISE
            ]
        for pattern in matching:
            hits[pattern.id].append((offset, PATTERNS.index(pattern), first and first + row, line))
        offset += len(raw) + 1
    kept = {hit for each in hits.values() for hit in each[:HITS_PER_END] + each[-HITS_PER_END:]}
    return [
        (PATTERNS[index].id, number, at, line.decode(errors="replace"))
        for at, index, number, line in sorted(kept)
    ]


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(st.tuples(st.sampled_from(LINES), st.integers(1, 30)), max_size=25),
    chunk=st.sampled_from([1, 40, 300, 64 * 1024]),
    large=st.sampled_from([0, 1024 * 1024]),
    first=st.sampled_from([1, 70, None]),
    offset=st.sampled_from([0, 1000]),
    experiment=st.sampled_from(["", "nova", "t2k"]),
)
def test_hits_are_those_of_reading_line_by_line(lines, chunk, large, first, offset, experiment):
    data = b"\n".join(line for line, times in lines for _ in range(times))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", chunk)
        patch.setattr(catalogue, "LARGE_BYTES", large)
        patch.setattr(catalogue, "REBUILD_BYTES", 100)
        hits = CATALOGUE.classify(
            JobFacts(experiment=experiment), Block(data, offset, len(data), first)
        ).hits
    hits_of_chunks = [(hit.pattern.id, hit.line, hit.offset, hit.text) for hit in hits]
    assert hits_of_chunks == read_line_by_line(data, offset, first, experiment)


@given(
    st.lists(st.sampled_from([b"\n", b"x", b"\n\n\n", b"y" * 50]), max_size=60).map(b"".join),
    st.data(),
)
def test_newlines_are_counted_as_bytes_count_does(data, draw):
    begin, end = draw.draw(st.integers(0, 90)), draw.draw(st.integers(0, 90))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_COUNTED_BYTES", 7)
        assert newlines(data, begin, end) == data.count(b"\n", begin, end)
        assert newlines(data) == data.count(b"\n")
        assert line_starts(data) == [0, *(place.end() for place in re.finditer(b"\n", data))]


@given(
    st.binary(max_size=200).map(lambda data: data.replace(b"a", b"\n")),
    st.lists(st.integers(0, 200)),
    st.integers(1, 9),
)
def test_line_numbers_are_right_in_any_order_of_questions(data, positions, first):
    numbers = LineNumbers(Block(data, 0, len(data), first))
    for position in positions:
        assert numbers.at(position) == first + data.count(b"\n", 0, position)


def test_lines_of_a_block_without_a_number_have_none():
    assert LineNumbers(Block(b"a\nb\n", 0, 4, None)).at(2) is None
