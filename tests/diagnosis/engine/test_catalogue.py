"""The catalogue of known errors: what is checked at load, and what is found in a log."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.evidence.catalogue import (
    COLUMNS,
    KnownErrorFileError,
    built_in,
    read_catalogue,
    read_patterns,
)
from apps.diagnosis.engine.formats.chunks import CHUNK_BYTES
from apps.diagnosis.enums import Role

HEAD = ",".join(COLUMNS) + "\n"
GOOD = "A-ONE,First,service,samweb,went wrong \\d+,retry,cause,stdout,it went wrong 5\n"


def block(text: str | bytes) -> Block:
    data = text if isinstance(text, bytes) else text.encode()
    return Block(data, 0, len(data), 1)


def found(text: str | bytes) -> list[tuple[str, int | None, int]]:
    hits = built_in().classify(JobFacts(), block(text)).hits
    return [(hit.pattern.id, hit.line, hit.offset) for hit in hits]


def test_built_in_catalogue_holds_every_pattern():
    assert len(built_in().patterns) >= 250
    assert {pattern.role for pattern in built_in().patterns} == set(Role)


def test_every_pattern_finds_its_example_through_the_matcher():
    missed = [
        pattern.id
        for pattern in built_in().patterns
        if pattern.id not in {name for name, _, _ in found(f"before\n{pattern.example}\nafter\n")}
    ]
    assert missed == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "A-ONE,First,service,s,(,retry,cause,stdout,x\n",
            "line 3: regex of A-ONE does not compile in RE2",
        ),
        (
            "A-TWO,Second,service,s,(?=x)x,retry,cause,stdout,x\n",
            "line 3: regex of A-TWO does not compile in RE2",
        ),
        (
            "A-TWO,Second,service,s,y,retry,cause,stdout,x\n",
            "line 3: regex of A-TWO does not match its example",
        ),
        (
            "A-TWO,Second,service,s,y*,retry,cause,stdout,x\n",
            "line 3: regex of A-TWO matches the empty line",
        ),
        ("A-TWO,Second,service,s,x,retry,culprit,stdout,x\n", "line 3: unknown role 'culprit'"),
        ("A-TWO,Second,moon,s,x,retry,cause,stdout,x\n", "line 3: unknown category 'moon'"),
        ("A-TWO,Second,service,s,x,pray,cause,stdout,x\n", "line 3: unknown advice 'pray'"),
        (GOOD, "line 3: duplicate id A-ONE"),
        ("A-TWO,Second,service\n", "line 3: row must have 9 columns"),
        (",Second,service,s,x,retry,cause,stdout,x\n", "line 3: id is missing"),
    ],
)
def test_bad_row_is_named_by_file_line_and_fault(row, message):
    with pytest.raises(KnownErrorFileError, match=message) as caught:
        read_patterns(HEAD + GOOD + row, "mine.csv")
    assert str(caught.value).startswith("mine.csv, ")


def test_catalogue_with_other_columns_is_refused():
    with pytest.raises(KnownErrorFileError, match="columns must be"):
        read_patterns("id,regex\nA,b\n", "mine.csv")


def test_catalogue_version_follows_its_content(tmp_path: Path):
    file = tmp_path / "mine.csv"
    file.write_text(HEAD + GOOD)
    first = read_catalogue(file).version
    file.write_text(HEAD + GOOD.replace("A-ONE", "A-TWO"))
    assert read_catalogue(file).version != first


def test_missing_catalogue_is_a_catalogue_error(tmp_path: Path):
    with pytest.raises(KnownErrorFileError, match="no-such"):
        read_catalogue(tmp_path / "no-such.csv")


def test_hit_has_line_offset_text_and_fields():
    text = (
        "fine\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME "
        "LIMIT ***\r\n"
    )
    (hit,) = built_in().classify(JobFacts(), block(text)).hits
    assert (hit.pattern.id, hit.line, hit.offset) == ("SLURM-TIMELIMIT", 2, 5)
    assert hit.text.endswith("DUE TO TIME LIMIT ***")
    assert hit.fields == {"job": "7", "node": "n1"}


def test_bytes_that_are_no_text_do_not_hide_an_error():
    text = b"\xff\xfe\x00 std::bad_alloc \x80\n"
    (hit,) = built_in().classify(JobFacts(), block(text)).hits
    assert "\x00" not in hit.text
    assert hit.pattern.id == "BADALLOC"


def test_line_start_is_found_in_the_middle_of_a_chunk():
    assert found("a\nKeyError: 'x'\n") == [("PY-TRACEBACK", 2, 2)]


def test_noise_silences_its_line():
    assert found("TLS: Unable to create TLS context; certificate has expired\n") == [
        ("TLS-BADKEY", 1, 0)
    ]


def test_text_of_a_very_long_line_is_cut_around_its_match():
    text = "x" * 300_000 + " std::bad_alloc " + "y" * 300_000 + "\n"
    (hit,) = built_in().classify(JobFacts(), block(text)).hits
    assert "std::bad_alloc" in hit.text
    assert len(hit.text) <= 1000


def test_flood_of_one_error_keeps_the_first_and_the_last_ten():
    kept = [*range(10), *range(490, 500)]
    assert found("std::bad_alloc\n" * 500) == [("BADALLOC", n + 1, n * 15) for n in kept]


def test_good_log_has_no_hits():
    assert (
        found(
            "CoreDumpSvc INFO Handling signals: 11(Segmentation fault)\nAll 0 errors\nfailed: 0\n"
        )
        == []
    )


@given(
    st.lists(
        st.sampled_from(["fine", "std::bad_alloc", "", "z" * (CHUNK_BYTES // 3)]), max_size=30
    ),
    st.booleans(),
)
def test_chunks_find_what_line_by_line_finds(lines, closed):
    text = "\n".join(lines) + "\n" * closed
    expected, offset = [], 0
    for number, line in enumerate(lines, 1):
        if line == "std::bad_alloc":
            expected.append(("BADALLOC", number, offset))
        offset += len(line) + 1
    assert found(text) == expected[:20]
