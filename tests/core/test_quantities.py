import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.domain.quantities import (
    COUNT_HELP,
    count_noun,
    format_count,
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_size,
    round_duration,
    round_size,
)
from tests.factories.requests import draft

JSON = "application/json"
WHOLE = st.integers(min_value=0, max_value=10**14)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4 GB", 4 * 10**9),
        ("3900 MB", 3_900_000_000),
        ("4gb", 4 * 10**9),
        (" 1.5 GB ", 1_500_000_000),
        ("4 GiB", 2**32),
        ("512 KiB", 2**19),
        ("7 B", 7),
    ],
)
def test_size_is_read_with_its_unit(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "4", "GB", "4 GBs", "-4 GB", "4,5 GB", "1.5 B", "4 GB 2", "٤ GB", "9" * 400 + " GB"],
)
def test_size_that_is_none_says_what_to_write(text):
    with pytest.raises(ValueError, match="such as 4 GB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8 h", 28_800),
        ("08:00:00", 28_800),
        ("08:00", 28_800),
        ("2 d", 172_800),
        ("1-12:00:00", 129_600),
        ("2 d 12 h", 216_000),
        ("2 h 57", 10_620),
        ("90 min", 5_400),
        ("1.5 h", 5_400),
        ("2 Days", 172_800),
    ],
)
def test_duration_is_read_in_every_usual_way(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "8", "h", "8 parsecs", "08:60:00", "-1 h", "8 h 3 x", "1:2:3:4", "0.0001 s"]
)
def test_duration_that_is_none_says_what_to_write(text):
    with pytest.raises(ValueError, match="such as 8 h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4000", 4000),
        ("20,000,000", 20_000_000),
        ("20 000", 20_000),
        ("20 M", 20_000_000),
        ("1.5k", 1500),
    ],
)
def test_count_is_read_with_separators_and_suffix(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "many", "1.5", "-3", "20,00", "1,2,3", "1.0001 k"])
def test_count_that_is_none_says_what_to_write(text):
    with pytest.raises(ValueError, match="whole number"):
        parse_count(text)


@pytest.mark.parametrize(
    ("number", "exact", "rounded"),
    [
        (3_900_000_000, "3.9 GB", "3.9 GB"),
        (2**32, "4.294967296 GB", "4.3 GB"),
        (10**9 - 1, "999.999999 MB", "1 GB"),
        (0, "0 B", "0 B"),
    ],
)
def test_sizes_have_one_way_to_be_written(number, exact, rounded):
    assert (format_size(number), round_size(number)) == (exact, rounded)


@pytest.mark.parametrize(
    ("seconds", "exact", "rounded"),
    [
        (59, "59 s", "59 s"),
        (7621, "2 h 07 min 1 s", "2 h 07 min"),
        (36 * 3600, "36 h", "36 h"),
        (216_000, "2 days 12 h", "2 days"),
    ],
)
def test_durations_have_one_way_to_be_written(seconds, exact, rounded):
    assert (format_duration(seconds), round_duration(seconds)) == (exact, rounded)


@given(WHOLE)
def test_what_is_written_is_read_the_same(number):
    assert parse_size(format_size(number)) == number
    assert parse_count(format_count(number)) == number
    assert parse_duration(format_duration(number % 10**8)) == number % 10**8


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_a_clear_refusal(text):
    for parse in (parse_size, parse_duration, parse_count):
        assert re.match(r"\d|Enter a ", answer(parse, text))


def answer(parse, text: str) -> str:
    try:
        return str(parse(text))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("method", ["create", "change", "check"])
def test_api_takes_the_quantities_of_the_form_and_of_yaml(method, nova, liaison, client):
    client.force_login(liaison)
    made = draft(liaison, nova)
    stages = [
        {
            "name": "a",
            "events": "20 M",
            "memory_bytes": "4 GB",
            "wall_seconds": "1 h 30 min",
            "jobs": 40,
        }
    ]
    if method == "create":
        answer = client.post(
            "/api/v1/requests/", {"experiment": "NOVA", "stages": stages}, content_type=JSON
        )
    elif method == "change":
        answer = client.patch(
            f"/api/v1/requests/{made.key}/", {"version": 1, "stages": stages}, content_type=JSON
        )
    else:
        answer = client.post(
            f"/api/v1/requests/{made.key}/check/", {"stages": stages}, content_type=JSON
        )
        assert answer.status_code == 200
        return
    assert answer.status_code in {200, 201}
    stage = answer.json()["stages"][0]
    assert [stage[name] for name in ("events", "memory_bytes", "wall_seconds", "jobs")] == [
        20_000_000,
        4_000_000_000,
        5_400,
        40,
    ]
    wrong = {
        "version": 2,
        "title": "x" * 300,
        "stages": [{"events": "20 milion", "services": ["nfs"]}],
    }
    told = client.patch(f"/api/v1/requests/{made.key}/", wrong, content_type=JSON).json()
    assert list(told) == ["title", "stages.0.services", "stages.0.events"]
    assert told["stages.0.events"] == [COUNT_HELP]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (12_400, "12,400 jobs")]
)
def test_count_noun(count, text):
    assert count_noun(count, "job") == text
