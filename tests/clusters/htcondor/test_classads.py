"""Ads are read as HTCondor's own library reads them, and hostile ones cost nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.htcondor import classads
from apps.clusters.schedulers.htcondor.classads import (
    integer_of,
    number_of,
    read_ad,
    string_of,
    text_of,
    truth_of,
)

CHARACTERS = st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS)


@settings(deadline=None)
@given(TEXTS)
def test_a_string_comes_back_as_it_was_written(text):
    ad = read_ad([b"A = " + classads.quoted(text.encode())])

    assert string_of(ad, "a") == text.encode()


@settings(deadline=None)
@given(st.text(st.sampled_from('ab"\\ ;')))
def test_strings_are_what_the_library_of_htcondor_reads(text):
    library = pytest.importorskip("classad2")
    if text.endswith("\\"):
        return  # the library keeps such a string, and reads its end in its own way
    ad = library.parseOne(f"A = {classads.quoted(text.encode()).decode()}\n")

    assert text_of(read_ad([b"A = " + classads.quoted(text.encode())]), "A") == ad["A"]


def test_literals_are_read_and_expressions_are_none():
    ad = read_ad(
        [
            b"Count = 3",
            b"Cpu = 1.5E+02",
            b"Yes = TRUE",
            b'Name = "say \\"hi\\""',
            b'Sum = "a" + "b"',
            b"Sub = A.B",
            b"x",
        ]
    )

    assert integer_of(ad, "COUNT") == 3
    assert number_of(ad, "Cpu") == 150.0
    assert truth_of(ad, "Yes") is True
    assert text_of(ad, "Name") == 'say "hi"'
    assert string_of(ad, "Sum") is None
    assert number_of(ad, "Sub") is None
    assert number_of(ad, "Name") is None
    assert text_of(ad, "None") == ""


@pytest.mark.parametrize(
    "value",
    [
        b"1+" * 1_000_000 + b"1",
        b"(" * 1_000_000,
        b"9" * 400_000,
        b"1e999999",
        b'"',
        b"",
        b"-",
        b".",
    ],
)
def test_an_odd_value_is_no_value(value):
    ad = read_ad([b"A = " + value])

    assert string_of(ad, "A") is None
    assert integer_of(ad, "A") is None


def test_a_backslash_at_the_end_escapes_nothing():
    assert string_of(read_ad([b'A = "c:\\dir\\"']), "A") == b"c:\\dir\\"


def test_what_is_no_text_is_shown_escaped():
    assert text_of(read_ad([b'A = "caf\xe9\0"']), "A") == "caf\\xe9\\x00"
