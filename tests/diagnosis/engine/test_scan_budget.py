"""Known errors that are slow on a hostile log: left out of it, and named."""

import time

import pytest

from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.evidence import scan_budget
from apps.diagnosis.engine.evidence.catalogue import KnownErrorCatalogue, read_patterns
from apps.diagnosis.enums import ReasonKind
from tests.diagnosis.engine.slow_expressions import LOG, REGEX

ROWS = f"""id,title,category,service,regex,advice,role,where,example
LOST,Geometry lost,service,geometry,geometry server gone,retry,cause,stdout,geometry server gone
SLOW,Slow,service,geometry,"{REGEX}",retry,cause,stdout,{"ab" * 9}
FLOOD,Flood,service,geometry,disk is full,retry,cause,stdout,disk is full
"""
#: The same with an expression that is slow for Hyperscan, too.
SLOWER_ROWS = ROWS.replace(REGEX, f"{REGEX}#").replace("ab" * 9, "ab" * 9 + "#")


@pytest.fixture(scope="module")
def patterns():
    return read_patterns(ROWS, "slow.csv")


def block(text: str) -> Block:
    data = text.encode()
    return Block(data, 0, len(data), 1)


@pytest.mark.parametrize("fast", [True, False])
def test_slow_pattern_is_left_out_and_the_others_are_found_after_it(monkeypatch, fast):
    monkeypatch.setattr(scan_budget, "SECONDS", 0.2)
    patterns = read_patterns(SLOWER_ROWS if fast else ROWS, "slow.csv")
    flood = "disk is full\n" * 30
    began = time.thread_time()
    diagnosis = diagnose(
        JobFacts(),
        [block(flood + LOG * (20 if fast else 2) + "geometry server gone\n" + flood)],
        classifiers={"c": KnownErrorCatalogue(patterns, "1", fast=fast)},
    )
    assert time.thread_time() - began < 5  # of 20 s
    ids = [hit.pattern.id for hit in diagnosis.hits if hit.pattern.id != "SLOW"]
    assert ids == ["FLOOD"] * 10 + ["LOST"] + ["FLOOD"] * 10
    assert diagnosis.omitted == {"SLOW"}
    reasons = [
        reason.text for reason in diagnosis.verdict.reasons if reason.kind == ReasonKind.CATALOGUE
    ]
    assert (
        "Known errors too slow for this log, which were not searched in all of it: SLOW" in reasons
    )


def test_slow_pattern_is_found_in_the_text_that_was_slow(monkeypatch):
    """The chunk after it, in which another known error stands, says nothing about who is slow."""
    monkeypatch.setattr(scan_budget, "SECONDS", 0.1)
    harmless_chunks = ("d" * 120 + "\n") * 3000
    text = LOG * 8 + harmless_chunks + "geometry server gone\n"
    findings = KnownErrorCatalogue(read_patterns(SLOWER_ROWS, "slow.csv"), "1", fast=True).classify(
        JobFacts(), block(text)
    )
    assert [hit.pattern.id for hit in findings.hits] == ["LOST"]
    [reason] = findings.reasons
    assert reason.text.endswith("not searched in all of it: SLOW")


def test_search_ends_where_everything_is_slow(patterns, monkeypatch):
    monkeypatch.setattr(scan_budget, "SECONDS", 0.0)
    findings = KnownErrorCatalogue(patterns, "1").classify(
        JobFacts(), block("plain line\n" * 60_000 + "geometry server gone\n")
    )
    assert findings.hits == ()
    [reason] = findings.reasons
    assert "Part of the log was not searched for known errors" in reason.text


def test_log_of_nothing_but_errors_is_within_the_budget(patterns):
    findings = KnownErrorCatalogue(patterns, "1").classify(
        JobFacts(), block("disk is full\ngeometry server gone\n" * 100_000)
    )
    assert (len(findings.hits), findings.reasons) == (40, ())
