"""What each check says of plain facts, and that a check of somebody else cannot break the
others.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.quality.checks import (
    Facts,
    Histogram,
    Judgement,
    Limit,
    Number,
    Posted,
    StageFacts,
    quality_check,
)
from apps.quality.checks.facts import Catalogued, Files, JobSums, LogSample
from apps.quality.checks.registry import CHECKS, checks
from apps.quality.domain.evaluation import evaluate
from apps.quality.domain.thresholds import Setting
from apps.quality.enums import Effect, Outcome, Unknown

STAGE = StageFacts(
    position=1, name="reco", jobs_requested=10, events_requested=100, files_in=10, events_in=100, files_out=10,
    events_out=100, jobs=JobSums(ended=12, completed=10, failed=1),
)  # fmt: skip
FIRST = replace(STAGE, position=0, name="gen", files_in=None, events_in=None)


def facts(stage=STAGE, first=FIRST, **more) -> Facts:
    return Facts(request="NOVA-0001", stages=(first, stage), **more)


def say(name: str, what: Facts, **limits: float | None) -> dict[str, Judgement]:
    """What one check says of the second stage, by subject."""
    check = checks()[name]
    known = {limit.name: limit.default for limit in check.limits}
    return {
        judgement.subject: judgement
        for judgement in check(what, {**known, **limits})
        if judgement.stage is None or judgement.stage.position
    }


def outcome(name: str, stage: StageFacts, subject: str = "", **limits: float | None) -> str:
    return say(name, facts(stage), **limits)[subject].outcome


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (JobSums(ended=10, completed=10), "passed"),
        (JobSums(ended=10, completed=9), "failed"),
        (JobSums(ended=30, completed=11), "passed"),
        (JobSums(), "unknown"),
    ],
)
def test_missing_jobs(jobs, expected):
    assert outcome("missing_jobs", replace(STAGE, jobs=jobs)) == expected


def test_missing_jobs_within_what_an_admin_allows_are_a_warning_or_nothing():
    few = replace(STAGE, jobs=JobSums(ended=10, completed=9))
    assert outcome("missing_jobs", few, most_missing=0.1) == "warned"
    assert outcome("missing_jobs", few, most_missing=0.1, warn_missing=0.1) == "passed"
    assert say("missing_jobs", facts(replace(STAGE, jobs_requested=None))) == {}


@pytest.mark.parametrize(
    ("failed", "expected"), [(0, "passed"), (5, "passed"), (6, "warned"), (26, "failed")]
)
def test_failure_fraction(failed, expected):
    stage = replace(STAGE, jobs=JobSums(ended=100, completed=100 - failed, failed=failed))
    assert outcome("failure_fraction", stage) == expected


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        (LogSample(sampled=10, read=10), "passed"),
        (LogSample(sampled=10, read=10, bad=1, patterns={"x": 1}, line="boom"), "warned"),
        (LogSample(sampled=10, read=4, bad=2), "failed"),
        (LogSample(sampled=10), "unknown"),
        (LogSample(), "unknown"),
    ],
)
def test_log_errors(logs, expected):
    assert outcome("log_errors", replace(STAGE, logs=logs)) == expected
    assert say("log_errors", facts(replace(STAGE, logs=logs)), sample=0) == {}


@pytest.mark.parametrize(
    ("written", "expected"), [(100, "passed"), (99, "failed"), (101, "warned"), (None, "unknown")]
)
def test_events_delivered(written, expected):
    assert outcome("events_delivered", replace(STAGE, events_out=written)) == expected


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (100, 100, "passed"),
        (100, 99, "failed"),
        (99, 100, "failed"),
        (0, 0, "passed"),
        (0, 1, "failed"),
        (None, 100, "unknown"),
        (100, None, "unknown"),
    ],
)
def test_events_kept(read, written, expected):
    assert outcome("events_kept", replace(STAGE, events_in=read, events_out=written)) == expected


@pytest.mark.parametrize(
    ("kind", "arguments", "written", "expected"),
    [
        ("skim", {"passing": 0.2}, 20, "passed"),
        ("skim", {"passing": 0.2}, 21, "passed"),
        ("skim", {"passing": 0.2}, 30, "failed"),
        ("skim", {}, 100, "passed"),
        ("skim", {}, 101, "failed"),
        ("generation", {"filter_efficiency": 0.5}, 50, "passed"),
    ],
)
def test_stage_that_selects_keeps_its_part(kind, arguments, written, expected):
    stage = replace(STAGE, kind=kind, arguments=arguments, events_out=written)
    assert outcome("events_kept", stage) == expected


def test_handed_on_looks_at_files_and_events_of_the_stage_before():
    said = say("handed_on", facts(replace(STAGE, files_in=9, events_in=None)))
    assert {subject: one.outcome for subject, one in said.items()} == {
        "files": "failed",
        "events": "unknown",
    }
    assert say("handed_on", facts(replace(STAGE, input_dataset="other"))) == {}


def test_files_written():
    assert outcome("files_written", STAGE) == "passed"
    assert outcome("files_written", replace(STAGE, files_out=9)) == "failed"
    assert outcome("files_written", replace(STAGE, files_out=None)) == "unknown"
    assert outcome("files_written", replace(STAGE, files=Files(count=9))) == "failed"
    [judgement] = say("files_written", facts(replace(STAGE, files_out=9))).values()
    assert judgement.why == "1 of 10 files is missing: 9 were written."
    assert (
        outcome("files_written", replace(STAGE, files_out=None, files=Files(count=10))) == "passed"
    )


def named(*sizes: int, **more) -> Files:
    rows = tuple((f"f{n}.root", size) for n, size in enumerate(sizes))
    return Files(
        count=len(sizes),
        size_bytes=sum(sizes),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        sizes=rows,
        **more,
    )


def test_file_sizes():
    assert outcome("file_sizes", STAGE) == "unknown"
    assert outcome("file_sizes", replace(STAGE, files=named(10, 20))) == "passed"
    assert outcome("file_sizes", replace(STAGE, files=named(10, 0))) == "failed"
    assert outcome("file_sizes", replace(STAGE, files=named(10, 20)), largest_bytes=15) == "failed"
    merged = replace(STAGE, files=named(10, 20), arguments={"target_bytes": 1000})
    assert outcome("file_sizes", merged) == "passed"
    assert outcome("file_sizes", merged, most_off=0.5) == "warned"
    by_event = replace(
        STAGE, files=named(10, 20), arguments={"output_event_bytes": 1}, files_out=2, events_out=3
    )
    assert outcome("file_sizes", by_event) == "warned"


def test_duplicates():
    assert outcome("duplicates", STAGE, "files") == "unknown"
    assert outcome("duplicates", replace(STAGE, files=named(1)), "files") == "passed"
    assert (
        outcome("duplicates", replace(STAGE, files=named(1, twice=("a",), twice_count=1)), "files")
        == "failed"
    )
    elsewhere = named(1, elsewhere=(("a", "NOVA-0002"),), elsewhere_count=1)
    assert outcome("duplicates", replace(STAGE, files=elsewhere), "files") == "failed"
    assert (
        outcome("duplicates", replace(STAGE, also_written_by=("NOVA-0002",)), "dataset") == "warned"
    )


def test_catalogue():
    known = Catalogued(name="x", files=10, events=99)
    said = say("catalogue", facts(replace(STAGE, catalogued=known)))
    assert {subject: one.outcome for subject, one in said.items()} == {
        "files": "passed",
        "events": "failed",
    }
    assert say("catalogue", facts()) == {}
    assert outcome("catalogue", replace(STAGE, arguments={"catalogued": True})) == "unknown"
    assert say("catalogue", facts(catalogue_error="away"))[""].outcome == "unknown"


def histogram(observed, reference=(100.0, 200.0, 100.0)) -> Histogram:
    edges = tuple(float(n) for n in range(len(observed) + 1))
    return Histogram(name="pt", edges=edges, reference=tuple(reference), observed=tuple(observed))


@pytest.mark.parametrize(
    ("observed", "expected"),
    [((50.0, 100.0, 50.0), "passed"), ((200.0, 100.0, 100.0), "failed"), ((5.0, 5.0, 5.0), "unknown"),
     ((130.0, 170.0, 100.0), "warned"), ((0.0, 0.0, 0.0), "unknown")],
)  # fmt: skip
def test_histograms(observed, expected):
    assert (
        outcome("histograms", replace(STAGE, histograms=(histogram(observed),)), "pt") == expected
    )


def test_histograms_and_results_that_are_wanted_but_not_there_are_not_known():
    assert say("histograms", facts(), wanted=0) == {}
    assert say("histograms", facts(), wanted=2)["number of histograms"].outcome == "unknown"
    assert say("external", facts(), wanted=1)["number of results"].outcome == "unknown"
    posted = Posted(name="dqm", outcome=Outcome.WARNED, why="look", link="https://dqm.example.org/")
    said = say("external", facts(posted=(posted,)), wanted=1)
    assert (said["dqm"].outcome, said["dqm"].numbers[1].link) == (
        "warned",
        "https://dqm.example.org/",
    )


def run(check, effect=Effect.BLOCK, unknown=Unknown.BLOCK, **limits):
    setting = Setting("mine", limits, effect, unknown)
    return evaluate(facts(), {"mine": check}, {"mine": setting})


def test_check_that_breaks_or_says_nonsense_is_not_known_and_blocks():
    @quality_check("Breaks")
    def breaks(known, limits):
        yield Judgement(outcome=Outcome.PASSED, why="fine")
        raise ValueError("<b>no</b>")

    @quality_check("Nonsense")
    def nonsense(known, limits):
        yield "passed"

    for check in (breaks, nonsense):
        (row,) = run(check)
        assert (row.outcome, row.blocks) == ("unknown", True)
    assert run(breaks, Effect.OFF) == []


def test_what_a_check_says_is_cut_cleaned_and_told_apart():
    @quality_check("Wild", Limit("most", 1, "x"))
    def wild(known, limits):
        for _ in range(3):
            yield Judgement(
                outcome=Outcome.FAILED, why="a\0b" * 5000, subject="s" * 500, value=math.nan, threshold=math.inf,
                numbers=(Number("n", math.inf, "javascript:alert(1)"), Number("m", 1, "//evil.example.org/")),
            )  # fmt: skip

    rows = run(wild)
    assert len({row.subject for row in rows}) == 3
    assert max(len(row.subject) for row in rows) <= 200
    assert len(rows[0].why) <= 2000
    assert "\0" not in rows[0].why
    assert (rows[0].value, rows[0].threshold) == (None, None)
    assert [(number["value"], number["link"]) for number in rows[0].numbers] == [
        (None, ""),
        (1, ""),
    ]


@pytest.mark.parametrize(
    ("said", "effect", "unknown", "expected"),
    [
        (Outcome.FAILED, Effect.BLOCK, Unknown.PASS, ("failed", True)),
        (Outcome.FAILED, Effect.WARN, Unknown.BLOCK, ("warned", False)),
        (Outcome.UNKNOWN, Effect.BLOCK, Unknown.BLOCK, ("unknown", True)),
        (Outcome.UNKNOWN, Effect.BLOCK, Unknown.PASS, ("unknown", False)),
        (Outcome.UNKNOWN, Effect.WARN, Unknown.BLOCK, ("unknown", False)),
        (Outcome.WARNED, Effect.BLOCK, Unknown.BLOCK, ("warned", False)),
    ],
)
def test_settings_say_what_stands_in_the_way(said, effect, unknown, expected):
    @quality_check("One")
    def one(known, limits):
        yield Judgement(outcome=said, why="so")

    (row,) = run(one, effect, unknown)
    assert (row.outcome, row.blocks) == expected


def test_digest_tells_what_is_said_and_nothing_else():
    def of(value):
        @quality_check("One")
        def one(known, limits):
            yield Judgement(outcome=Outcome.FAILED, why="so", value=value)

        return run(one)[0].digest

    assert of(1.0) == of(1.0) != of(2.0)


def test_every_built_in_check_works_and_says_what_it_is_about():
    assert set(checks()) == set(CHECKS.builtins)
    assert all(check.title and check.description.endswith(".") for check in checks().values())


WHOLE = st.none() | st.integers(0, 200)
STAGES = st.builds(
    StageFacts, position=st.just(1), name=st.just("reco"), kind=st.sampled_from(["", "skim", "merge"]),
    jobs_requested=WHOLE, events_requested=WHOLE, files_in=WHOLE, events_in=WHOLE, files_out=WHOLE, events_out=WHOLE,
    arguments=st.sampled_from([{}, {"passing": 0.0}, {"passing": 0.5}, {"target_bytes": 10}, {"catalogued": True}]),
    jobs=st.builds(JobSums, ended=st.integers(0, 99), completed=st.integers(0, 99), failed=st.integers(0, 9)),
    files=st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=3).map(lambda sizes: named(*sizes)),
    histograms=st.lists(
        st.lists(st.floats(0, 1e6), min_size=3, max_size=3).map(histogram), max_size=1
    ).map(tuple),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(stage=STAGES, first=STAGES)
def test_no_facts_break_a_check(stage, first):
    known = facts(stage, replace(first, position=0, name="gen"))
    for name, check in checks().items():
        limits = {limit.name: limit.default for limit in check.limits}
        rows = evaluate(
            known, {name: check}, {name: Setting(name, limits, check.effect, check.unknown)}
        )
        assert not [row.why for row in rows if "broke" in row.why]


def test_example_of_the_documentation_works():
    text = (Path(__file__).parents[2] / "docs" / "data-quality.md").read_text()
    made: dict = {}
    exec(text.partition("```python\n")[2].partition("```")[0], made)
    (low,) = [one for one in run(made["events_per_file"], fewest=11) if one.position == 1]
    assert (low.outcome, low.value, low.why) == ("failed", 10, "10 events per file.")
    assert {one.outcome for one in run(made["events_per_file"], fewest=10)} == {"passed"}
