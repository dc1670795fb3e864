"""What every matcher of expressions must do: leave out none that RE2 finds,
and say no position too late.

Derive a test class from `MatcherContract` and give it `make`, which returns a matcher of some
expressions.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.diagnosis.engine.evidence.catalogue import built_in, compile_pattern
from apps.diagnosis.engine.evidence.matchers import Matcher
from apps.diagnosis.engine.formats.chunks import matching_lines

#: Each derived class runs the tests by itself.
DERIVED = (HealthCheck.differing_executors,)
#: Expressions that PCRE reads otherwise than RE2, that depend on where a text begins, or that are
#: complex.
AWKWARD = (
    r"\S{3}!",
    r"[^\s]x[^\s]",
    r"(?i)caf\xe9",
    r"(?i)straße",
    r"\pL\d",
    r"\Astart",
    r"end\z",
    r"^\C{3}$",
    r"\Q.*\E",
    r"a\vb",
    r"[[:^alpha:]]{4}k",
    r"(?i)kelvin|(?-i)Case",
    r"(?s)from.{1,40}to",
    r"spread\s+over",
    r"(?P<what>\w+) broke$",
    r"\bword\b.\B",
    r"(?:x.{90}){9}y",
    r"(?U)q+r",
    r"k{,3}",
)
PIECES = (
    b"abc!",
    b"a\x0b!",
    b"\x0bx\x0b",
    b"caf\xe9",
    b"CAF\xc9",
    b"stra\xdfe",
    b"\xe97",
    b"start",
    b"the end",
    b"end",
    b"\xff\x00\xfe",
    b".*",
    b"a\x0bb",
    b"1234k",
    b"KELVIN",
    b"\xe2\x84\xaaelvin",
    b"Case",
    b"case",
    b"from",
    b"to",
    b"spread",
    b"over",
    b"it broke",
    b"word",
    b"x" * 50,
    b"qqr",
    b"k{,3}",
    b"\n",
    b"\n",
    b"\n\n",
    b" ",
    b"\r",
    b"",
)
EXAMPLES = tuple(pattern.example.encode() for pattern in built_in().patterns)
SHIPPED = tuple(pattern.regex for pattern in built_in().patterns)
texts = st.lists(st.sampled_from(PIECES + EXAMPLES[::10]), max_size=30).map(b"".join)


#: RE2 keeps fewer compiled expressions than are shipped.
compiled_pattern = cache(compile_pattern)


def lines_of(regex: str, text: bytes, first: int = 0) -> list[int]:
    """Return where the lines begin that RE2 finds and that match by themselves."""
    compiled = compiled_pattern(regex)
    return [start for start, line in matching_lines(compiled, text, first) if compiled.search(line)]


class MatcherContract:
    @staticmethod
    def make(regexes: Sequence[str]) -> Matcher:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def shipped(cls) -> Matcher:
        return cls.make(SHIPPED)

    @pytest.fixture(scope="class")
    @classmethod
    def awkward(cls) -> Matcher:
        return cls.make(AWKWARD)

    def test_every_shipped_expression_finds_its_example(self, shipped):
        missed = [
            regex
            for place, (regex, example) in enumerate(zip(SHIPPED, EXAMPLES, strict=True))
            if place not in shipped.match(b"before\n" + example + b"\nafter\n")
        ]
        assert missed == []

    def test_ordinary_lines_match_nothing(self, shipped):
        assert not shipped.match(b"event 7 done\nevent 8 done\n" * 1000)

    @settings(max_examples=300, deadline=None, suppress_health_check=DERIVED)
    @given(text=texts)
    def test_none_that_re2_finds_is_left_out(self, awkward, text):
        hits = awkward.match(text)
        for place, regex in enumerate(AWKWARD):
            assert place in hits or not compiled_pattern(regex).search(text), regex
        for place, first in hits.items():
            assert lines_of(AWKWARD[place], text, first) == lines_of(AWKWARD[place], text)

    @settings(max_examples=60, deadline=None, suppress_health_check=DERIVED)
    @given(
        text=st.lists(st.sampled_from((*EXAMPLES, b"", b"fine", b"\r")), max_size=15).map(
            b"\n".join
        )
    )
    def test_no_shipped_one_that_re2_finds_is_left_out(self, shipped, text):
        hits = shipped.match(text)
        for place, regex in enumerate(SHIPPED):
            assert lines_of(regex, text, hits.get(place, len(text) + 1)) == lines_of(regex, text), (
                regex
            )

    @settings(max_examples=60, deadline=None, suppress_health_check=DERIVED)
    @given(text=texts, begin=st.integers(0, 60), end=st.integers(0, 200))
    def test_part_of_a_text_is_a_text_of_its_own(self, awkward, text, begin, end):
        assert awkward.match(text, begin, end) == awkward.match(text[begin:end])

    def test_threads_may_share_one(self, shipped):
        text = b"event 7 done\n" * 100_000 + b"std::bad_alloc\n"
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(shipped.match, [text] * 40))
        assert answers == [shipped.match(text)] * 40
        assert answers[0]

    def test_no_expressions_match_nothing(self):
        assert not self.make(()).match(b"text\n")
