"""Figures rest on jobs that are alike, are scaled, and are left out where nothing is known."""

from dataclasses import asdict
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.production.domain.content.model import StageContent
from apps.production.domain.estimates.figures import (
    Distribution,
    PastStage,
    Range,
    estimate,
    jobs_at_once,
)
from apps.production.domain.forecast import Days, Forecast
from apps.production.domain.outputs.datasets import Dataset
from apps.production.web.templatetags.estimates import span
from tests.factories.requests import content, stage

TODAY = date(2026, 11, 20)


def past(request_key="NOVA-0001", **changes) -> PastStage:
    row = {
        "release": "v09_72",
        "configuration": "reco.fcl",
        "completed": 100,
        "core_seconds": 100 * 4000.0,
        "completed_wall_seconds": 100 * 2000.0,
        "wall_seconds": (1000.0, 1500.0, 2000.0, 2500.0, 3000.0),
        "per_day": (200.0, 250.0, 400.0, 500.0, 600.0),
    }
    return PastStage(request_key=request_key, **{**row, **changes})


def of(*rows: PastStage, datasets=(), stages: tuple[StageContent, ...] | None = None):
    written = content(stages=stages or (stage("reco", events=1000, jobs=1000),))
    return estimate(
        written, past={"reco": rows}, datasets={d.name: d for d in datasets}, today=TODAY
    )


def test_figures_of_one_past_stage():
    (stage_estimate,) = of(past()).stages
    assert (stage_estimate.past_jobs, stage_estimate.requests, stage_estimate.alike) == (
        100,
        ("NOVA-0001",),
        "same release and configuration",
    )
    assert stage_estimate.wall_seconds == Range(1500, 2000, 2500)
    assert stage_estimate.wall_most == 3000
    # Two cores a job, failed attempts included: 4000 core seconds a job on the average.
    assert stage_estimate.core_seconds == Range(3_000_000, 4_000_000, 5_000_000)
    assert stage_estimate.days == Range(2.0, 2.5, 4.0)


def test_enough_jobs_of_a_started_request_count_alone():
    others = past("NOVA-0001", completed=400, core_seconds=400 * 14_000.0)

    def core_seconds_of(own: int) -> float:
        row = past("NOVA-0003", completed=own, core_seconds=own * 1000.0)
        figures = estimate(
            content(stages=(stage("reco", events=1000, jobs=1000),)),
            past={"reco": (others, row)},
            datasets={},
            today=TODAY,
            own="NOVA-0003",
        )
        return figures.core_seconds.mid

    assert core_seconds_of(20) == pytest.approx(1000 * 1000)
    assert core_seconds_of(19) > 10 * 1000 * 1000


def test_no_job_counts_beyond_its_time_limit():
    """Past jobs took 1000 to 3000 s on two cores, and are killed after 600 s here."""
    (short,) = of(past(), stages=(stage("reco", events=1000, jobs=1000, wall_seconds=600),)).stages
    assert short.reaches_limit
    assert short.core_seconds == Range(1_200_000, 1_200_000, 1_200_000)
    # What past jobs took is still said, as it is the reason to ask for more time.
    assert (short.wall_seconds, short.wall_most) == (Range(1500, 2000, 2500), 3000)

    (half,) = of(past(), stages=(stage("reco", events=1000, jobs=1000, wall_seconds=1200),)).stages
    assert half.reaches_limit
    # Killed after 1200 s for 2000 s, jobs leave their places to the next ones earlier.
    assert asdict(half.days) == pytest.approx({"low": 1.2, "mid": 1.5, "high": 2.4})

    (some,) = of(past(), stages=(stage("reco", events=1000, jobs=1000, wall_seconds=2400),)).stages
    assert not some.reaches_limit
    assert some.core_seconds == Range(3_000_000, 4_000_000, 4_800_000)


def test_a_stage_whose_jobs_nearly_all_take_too_long_does_not_finish():
    """Past jobs took 1000 s or more, nine of ten of them."""

    def with_limit(wall_seconds: int):
        stages = (stage("reco", events=1000, jobs=1000, wall_seconds=wall_seconds),)
        return of(past(), stages=stages)

    never = with_limit(999)
    assert (never.unfinished, never.days, never.finish) == (["reco"], None, None)
    # Its jobs still take cores until their limit.
    assert never.core_seconds

    some = with_limit(1000)
    assert some.unfinished == []
    assert some.days
    assert some.finish


def test_a_stage_of_few_past_jobs_runs_as_many_at_once_as_the_experiment_did():
    """Fifty merges of twelve hours: at the one a day of the past they would take 50 days,
    at 40 at once one.
    """
    alone = past(
        completed=20,
        completed_wall_seconds=20 * 43_200.0,
        wall_seconds=(43_200.0,) * 5,
        per_day=(1.0,) * 5,
    )
    written = content(stages=(stage("reco", events=50, jobs=50, wall_seconds=50_000),))
    stage_estimate = estimate(written, past={"reco": (alone,)}, datasets={}, today=TODAY).stages[0]
    assert (stage_estimate.days.mid, stage_estimate.at_once) == (50, 0.5)
    bulk = past(
        "NOVA-0002", completed=4000, completed_wall_seconds=4000 * 7200.0, per_day=(480.0,) * 5
    )
    at_once = jobs_at_once([alone, bulk])
    assert at_once == Range(40, 40, 40)
    stage_estimate = estimate(
        written, past={"reco": (alone,)}, datasets={}, today=TODAY, at_once=at_once
    ).stages[0]
    assert (stage_estimate.days.mid, stage_estimate.at_once) == (0.625, 40)


def test_no_more_jobs_run_at_once_than_the_request_allows():
    """Its most concurrent jobs, as a keep-up request and its clones declare them."""

    def figures(**arguments):
        written = content(stages=(stage("reco"),), arguments=arguments)
        [of_stage] = estimate(
            written, past={"reco": (past(),)}, datasets={}, today=TODAY, at_once=Range(40, 40, 40)
        ).stages
        return of_stage

    free = figures()
    limited = figures(most_in_flight=4)
    assert not free.is_limited
    assert (limited.at_once, limited.is_limited) == (4, True)
    assert limited.days.mid == pytest.approx(free.days.mid * free.at_once / 4)
    assert figures(most_in_flight=4000) == free


def test_jobs_of_no_time_tell_nothing_about_how_many_run_at_once():
    instant = past(completed_wall_seconds=0.0, core_seconds=0.0, wall_seconds=(0.0,) * 5)
    assert jobs_at_once([instant]) is None
    assert jobs_at_once([instant, past()]) == jobs_at_once([past()])


def test_a_stage_without_past_runs_one_job_at_a_time_where_past_jobs_were_short():
    short = past(completed_wall_seconds=100.0, wall_seconds=(1.0,) * 5)
    written = content(stages=(stage("new", jobs=10, wall_seconds=86_400),))
    figures = estimate(written, past={}, datasets={}, today=TODAY, at_once=jobs_at_once([short]))
    assert figures.stages[0].days == Range(10, 10, 10)


durations = st.sampled_from([0.0, 0.4, 1.0, 3600.0, 1e9])


@given(durations, st.integers(0, 3), st.integers(0, 3), st.integers(0, 1), durations)
def test_no_past_and_no_stage_divides_by_zero(seconds, completed, jobs, events, limit):
    row = past(
        completed=completed,
        core_seconds=seconds * completed,
        completed_wall_seconds=seconds * completed,
        wall_seconds=(seconds,) * 5,
        per_day=(1.0,) * 5,
        events_per_job=events,
    )
    stages = (
        stage("reco", events=events, jobs=jobs, wall_seconds=int(limit)),
        stage("without past", events=events, jobs=jobs, wall_seconds=int(limit)),
    )
    figures = estimate(
        content(stages=stages),
        past={"reco": (row,)},
        datasets={},
        today=TODAY,
        at_once=jobs_at_once([row]),
    )
    days = [stage.days for stage in figures.stages if stage.days]
    assert all(0 <= range_.low <= range_.mid <= range_.high for range_ in days)


def test_finish_counts_from_today():
    assert of(past()).finish == (date(2026, 11, 22), date(2026, 11, 22), date(2026, 11, 24))


def test_finish_counts_from_the_expected_start_early_to_late():
    begins = Days(date(2026, 11, 25), date(2026, 12, 1), date(2026, 12, 20))
    written = content(stages=(stage("reco", events=1000, jobs=1000),))
    estimated = estimate(written, past={"reco": (past(),)}, datasets={}, today=TODAY)
    estimated = estimated.with_forecast(Forecast(start=begins))
    assert estimated.finish == (date(2026, 11, 27), date(2026, 12, 3), date(2026, 12, 24))


def test_no_past_jobs_is_no_figure():
    for estimated in (of(), of(past(completed=0, wall_seconds=(), per_day=()))):
        assert (estimated.past_jobs, estimated.without) == (0, ["reco"])
        assert estimated.core_seconds is estimated.finish is estimated.days is None


def test_stage_without_past_jobs_counts_with_its_limit():
    other = stage("other", jobs=10, wall_seconds=3600)
    estimated = of(past(), stages=(stage("reco", events=1000, jobs=1000), other))
    assert estimated.core_seconds == Range(3_036_000, 4_036_000, 5_036_000)
    assert (estimated.finish, estimated.by_limit) == (None, ["other"])
    assert of(past()).by_limit == []


def test_a_sum_needs_past_jobs_or_a_limit_of_every_stage_and_past_jobs_of_one():
    estimated = of(past(), stages=(stage("reco"), stage("other", wall_seconds=None)))
    assert estimated.stages[0].core_seconds is not None
    assert (estimated.core_seconds, estimated.without, estimated.by_limit) == (None, ["other"], [])
    assert of(stages=(stage("other"),)).core_seconds is None


def test_past_jobs_of_a_synonym_count_if_there_are_none_of_the_name():
    stages = (stage("reconstruction", configuration="reco.fcl"),)
    (figures,) = of(past(), stages=stages).stages
    assert (figures.past_jobs, figures.alike) == (100, "stage reco, same release and configuration")
    written = content(stages=stages)
    named = {"reco": [past()], "reconstruction": [past("NOVA-0002")]}
    (figures,) = estimate(written, past=named, datasets={}, today=TODAY).stages
    assert (figures.requests, figures.alike) == (("NOVA-0002",), "same release and configuration")


def test_times_are_scaled_by_events_a_job():
    (stage_estimate,) = of(
        past(events_per_job=10.0), stages=(stage("reco", events=20_000, jobs=1000),)
    ).stages
    assert stage_estimate.scaled
    assert stage_estimate.wall_seconds == Range(3000, 4000, 5000)
    assert stage_estimate.days == Range(4.0, 5.0, 8.0)


@pytest.mark.parametrize(
    ("rows", "alike", "jobs"),
    [
        ([past(), past("B", release="x")], "same release and configuration", 100),
        ([past(completed=19), past("B", release="x")], "same configuration, any release", 119),
        (
            [past(completed=19), past("B", configuration="x")],
            "same release, any configuration",
            119,
        ),
        (
            [past(release="x", configuration="y")],
            "same stage name, any release and configuration",
            100,
        ),
        ([past(completed=5)], "same release and configuration", 5),
    ],
)
def test_the_most_alike_that_are_enough(rows, alike, jobs):
    (stage_estimate,) = of(*rows).stages
    assert (stage_estimate.alike, stage_estimate.past_jobs) == (alike, jobs)


def test_disk_is_by_the_size_written_here_or_by_earlier_outputs_or_not_known():
    written = stage("reco", events=1000, arguments={"output_event_bytes": 250})
    (stage_estimate,) = of(stages=(written,)).stages
    assert (stage_estimate.disk_bytes, stage_estimate.disk_basis) == (
        Range(250e3, 250e3, 250e3),
        "the size per event in the request",
    )
    outputs = [
        Dataset("a", events=10, size_bytes=1000),
        Dataset("b", events=10, size_bytes=3000),
        Dataset("c"),
    ]
    (stage_estimate,) = of(
        past(output_dataset="a"), past("B", output_dataset="b"), datasets=outputs
    ).stages
    assert (stage_estimate.disk_bytes, stage_estimate.disk_basis) == (
        Range(1e5, 2e5, 3e5),
        "2 earlier outputs in the catalogue",
    )
    assert of(past()).disk_bytes is None


def test_quantiles_over_stages_are_weighted_by_their_jobs():
    (stage_estimate,) = of(
        past(completed=1000), past("B", completed=1, wall_seconds=(9e9,) * 5)
    ).stages
    assert stage_estimate.wall_seconds == Range(1500, 2000, 2500)


rows = st.builds(
    past,
    completed=st.integers(0, 1000),
    release=st.sampled_from(["v09_72", "x"]),
    events_per_job=st.none() | st.floats(0.1, 1e6),
    core_seconds=st.floats(0, 1e9),
    completed_wall_seconds=st.just(0.0) | st.floats(1, 1e9),
    wall_seconds=st.lists(st.floats(0, 1e6), min_size=5, max_size=5).map(sorted).map(tuple),
    per_day=st.lists(st.floats(0, 1e6), min_size=5, max_size=5).map(sorted).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, max_size=5))
def test_ranges_are_in_order_and_nothing_breaks(given_rows):
    estimated = of(*given_rows)
    for one in estimated.stages:
        for figure in (one.wall_seconds, one.core_seconds, one.days):
            assert figure is None or 0 <= figure.low <= figure.mid <= figure.high
    assert (
        estimated.finish is None
        or TODAY <= estimated.finish.early <= estimated.finish.likely <= estimated.finish.late
    )


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (Range(0.375, 0.375, 0.375), "9 h"),
        (Range(1, 1.5, 3), "36 h (24 h to 3 days)"),
        (Range(3, 4.2, 130), "4.2 days (3 days to 130 days)"),
    ],
)
def test_short_running_time_is_in_hours(days, text):
    assert span(days, "days") == text


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0.1, 100)), min_size=1, max_size=20).map(sorted)
)
def test_quantile_is_a_value_that_enough_do_not_exceed(points):
    total = sum(weight for _, weight in points)
    median = Distribution(points).quantile(0.5)
    assert sum(weight for value, weight in points if value <= median) >= total / 2 * (1 - 1e-6)
