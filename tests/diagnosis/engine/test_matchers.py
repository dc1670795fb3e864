"""The matchers of known errors: RE2's and Hyperscan's."""

from apps.diagnosis.engine.evidence import matchers
from apps.diagnosis.engine.evidence.matchers import (
    HyperscanMatcher,
    Re2Matcher,
    matcher_of_large_logs,
)
from tests.contracts.matcher import AWKWARD, MatcherContract


class TestRe2(MatcherContract):
    make = staticmethod(Re2Matcher)


class TestHyperscan(MatcherContract):
    @staticmethod
    def make(regexes):
        return HyperscanMatcher(regexes, Re2Matcher(regexes))

    def test_only_what_it_may_read_otherwise_or_cannot_compile_is_left_to_re2(self):
        _, rest, _ = self.make((*AWKWARD, r"plain (?P<word>\w+)$"))._compiled
        assert {AWKWARD[place] for place in rest} >= {
            r"(?i)caf\xe9",
            r"\Astart",
            r"\pL\d",
            r"(?U)q+r",
        }
        assert len(AWKWARD) not in rest


def test_large_logs_are_for_hyperscan_where_it_is_installed(monkeypatch):
    exact = Re2Matcher(["a"])
    assert isinstance(matcher_of_large_logs(["a"], exact), HyperscanMatcher)
    monkeypatch.setattr(matchers, "hyperscan", None)
    assert matcher_of_large_logs(["a"], exact) is exact
