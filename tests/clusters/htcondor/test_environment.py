"""Environments in both syntaxes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.htcondor.environment import (
    read_v1,
    read_v2,
    variables_of,
    write_v1,
    write_v2,
)

NAMES = st.binary(min_size=1).filter(lambda name: not set(name) & set(b"=\0"))
VARIABLES = st.lists(st.tuples(NAMES, st.binary()))


@settings(deadline=None)
@given(VARIABLES)
def test_the_new_syntax_keeps_every_byte(variables):
    assert read_v2(write_v2(variables)) == variables


@settings(deadline=None)
@given(VARIABLES)
def test_the_old_syntax_keeps_what_it_can_hold(variables):
    held = [
        (name, value)
        for name, value in variables
        if b";" not in name + value and not name[:1].isspace()
    ]

    assert read_v1(write_v1(held, b";"), b";") == held


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        (b"A=1 B=2", [(b"A", b"1"), (b"B", b"2")]),
        (b"A='x y'  'B=it''s' ", [(b"A", b"x y"), (b"B", b"it's")]),
        (b"A=one'  'two", [(b"A", b"one  two")]),
        (b"''", [(b"", b"")]),
        (b'A="quoted" B=a=b=c', [(b"A", b'"quoted"'), (b"B", b"a=b=c")]),
        (b"", []),
    ],
)
def test_odd_quoting_is_read_as_htcondor_reads_it(text, variables):
    assert read_v2(text) == variables


def test_a_quote_that_is_not_closed_is_an_error():
    with pytest.raises(ValueError, match="quote"):
        read_v2(b"A='x B=2")


def test_the_new_syntax_counts_where_a_job_has_both():
    ad = {b"environment": b'Environment = "A=1 A=2"', b"env": b'Env = "A=3"'}

    assert variables_of(ad) == ((b"A", b"2"),)


def test_the_old_syntax_is_cut_where_the_job_says():
    assert variables_of({b"env": b'Env = "A=1|B=2;3"', b"envdelim": b'EnvDelim = "|"'}) == (
        (b"A", b"1"),
        (b"B", b"2;3"),
    )
