"""The language of the search: what each text means, what is wrong with it, and back to text."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.search.domain.query.clauses import (
    Clause,
    Expression,
    Field,
    FieldValue,
    Phrase,
    Query,
    QueryError,
    Source,
    Word,
    parse_moment,
)
from apps.search.domain.query.matcher import QueryMatcher
from apps.search.domain.query.parser import LONGEST_QUERY, MOST_CLAUSES, parse
from tests.search.query_strategies import CLAUSES, QUERIES

AT = datetime(2026, 11, 24, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("", ()),
        ("  segfault \t core ", (Word("segfault"), Word("core"))),
        ("lib* -warning", (Word("lib", is_prefix=True), Word("warning", negated=True))),
        ("--mem=4G -n", (Word("--mem=4G"), Word("n", negated=True))),
        ("---mem=4G ---me*", (Word("--mem=4G", negated=True), Word("--me", True, True))),
        ('"no such file" -"is ok"', (Phrase(("no such file",)), Phrase(("is ok",), negated=True))),
        ('"open /cvmfs/* failed"', (Phrase(("open /cvmfs/", " failed")),)),
        (r'"a \"b\" \* \\"', (Phrase(('a "b" * \\',)),)),
        (r"/exit [1-9]\d+/", (Expression(r"exit [1-9]\d+"),)),
        (r"-/\/tmp\/.*core/", (Expression("/tmp/.*core", negated=True),)),
        ("/cvmfs/nova/setup.sh x", (Word("cvmfs/nova/setup.sh"), Word("x"))),
        ("/tmp", (Word("tmp"),)),
        ("std::bad_alloc https://x.org", (Word("std::bad_alloc"), Word("https://x.org"))),
        ("site:FNAL", (FieldValue(Field.SITE, "FNAL"),)),
        ("-stage:merge", (FieldValue(Field.STAGE, "merge", negated=True),)),
        ('host:"a \\"b"', (FieldValue(Field.HOST, 'a "b'),)),
        ('host:"::1"', (FieldValue(Field.HOST, "::1"),)),
        ("exit:-1 since:30d", (FieldValue(Field.EXIT, "-1"), FieldValue(Field.SINCE, "30d"))),
    ],
)
def test_what_a_text_means(text: str, clauses: tuple[Clause, ...]) -> None:
    assert parse(text).clauses == clauses


@pytest.mark.parametrize(
    ("text", "piece", "advice"),
    [
        ("x since:foo", "since:foo:", "“foo” is no time. Write 30d, 12h, 2026-11-17"),
        ("since:1d since:2d", "since:", "occurs twice"),
        ("-until:2d", "-until:2d:", "a time cannot be excluded"),
        ("in:mail", "in:mail:", "use one of log, script, environment"),
        ("state:broken", "state:broken:", "use one of any_failure, completed"),
        ("exit:bad", "exit:bad:", "whole number"),
        ("site:", "site:", "has no value"),
        ('site:""', "site:", "has no value"),
        ("hots:wn-1", "hots:wn-1:", "there is no field “hots”"),
        ('a "b c', '"b c:', "the closing quote is missing"),
        ('"b"c', '"b"c:', "no blank follows"),
        ('" "', '" ":', "the phrase is empty"),
        ('"*"', '"*":', "the phrase is empty"),
        ("//", "//:", "the regular expression is empty"),
        ("a;b*", "a;b*:", "only a single word may end with *"),
        ("x ;;", ";;:", "has no letters or digits"),
        ("-", "-:", "has no letters or digits"),
    ],
)
def test_an_error_names_the_piece_and_what_to_do(text: str, piece: str, advice: str) -> None:
    with pytest.raises(QueryError) as error:
        parse(text)
    assert str(error.value).startswith(piece)
    assert advice in str(error.value)


def test_a_long_query_is_refused() -> None:
    for text in ("x" * (LONGEST_QUERY + 1), "x " * (MOST_CLAUSES + 1), "a\0b"):
        with pytest.raises(QueryError):
            parse(text)


@settings(max_examples=400, deadline=None)
@given(QUERIES)
def test_a_query_is_the_same_after_it_was_text(query: Query) -> None:
    text = str(query)
    if len(text) <= LONGEST_QUERY:
        assert parse(text) == query


@given(QUERIES, CLAUSES)
def test_clauses_are_added_once_and_removed(query: Query, clause: Clause) -> None:
    longer = query.with_clause(clause)
    assert longer.has(clause)
    assert longer.with_clause(clause) == longer
    assert not longer.without(clause).has(clause)


@given(st.text(alphabet='a1é*-"/\\: \tsince:in:log30d', max_size=40) | st.text(max_size=30))
def test_any_text_is_a_query_or_has_an_error(text: str) -> None:
    try:
        query = parse(text)
    except QueryError:
        return  # nothing else is raised
    assert parse(str(query)) == query


def test_logs_and_scripts_are_searched_unless_the_query_names_other_places() -> None:
    assert parse("x").sources == (Source.LOG, Source.SCRIPT)
    assert parse("x in:environment in:log").sources == (Source.LOG, Source.ENVIRONMENT)
    assert parse("x -in:script").sources == (Source.LOG,)
    assert parse("x in:log -in:log").sources == ()


@pytest.mark.parametrize(
    ("text", "line", "marked"),
    [
        ('"an open"', "can open an open", ["an open", "an open"]),
        ('"a*b"', "xa1b a2b a", ["a", "b", "a", "b"]),
        ("err*", "err error, terror", ["err", "error"]),
        ("err -error", "err error", ["err"]),
        ("x", "y", []),
    ],
)
def test_what_is_marked_in_a_line(text: str, line: str, marked: list[str]) -> None:
    spans = QueryMatcher(parse(text)).spans(line)
    assert [line[start:end] for start, end in spans] == marked


def test_times() -> None:
    assert parse_moment("30d", at=AT) == datetime(2026, 10, 25, 22, 12, tzinfo=UTC)
    assert parse_moment("90m", at=AT) == datetime(2026, 11, 24, 20, 42, tzinfo=UTC)
    assert parse_moment("2026-11-17", at=AT) == datetime(2026, 11, 17, tzinfo=UTC)
    assert parse_moment("2026-11-17T03:41+01:00", at=AT) == datetime(
        2026, 11, 17, 2, 41, tzinfo=UTC
    )
    for text in ("", "30", "30y", "17.11.2026", "0001-01-01T00:00+14:00"):
        with pytest.raises(QueryError):
            parse_moment(text, at=AT)
