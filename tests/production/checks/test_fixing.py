"""All fixes of the checks, applied together, agree with each other and lead to no new error."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.production.domain.checks import Facts, Fix, RuleFinding, Severity
from apps.production.domain.checks.base import ClusterLimits
from apps.production.domain.checks.fixing import apply_fixes
from apps.production.domain.checks.report import CheckReport, run_checks
from apps.production.domain.estimates.figures import NO_ESTIMATE, PastStage, estimate
from tests.factories.requests import AT, content, stage

HOUR = 3600
GB = 10**9
FACTS = Facts(
    today=AT.date(),
    services=frozenset(),
    offers=(
        ClusterLimits("small", 64 * GB, 48 * HOUR),
        ClusterLimits("large", 256 * GB, 24 * HOUR),
    ),
)
NAMES = ("generation", "simulation", "reco")


def checks(*, wall: float = 2 * HOUR, events_per_job: float = 500, memory: float = 2.5 * GB):
    """The checks, with past jobs of this median time, and of this 90th percentile of memory."""
    row = PastStage(
        request_key="NOVA-0001",
        release="v09_72",
        events_per_job=events_per_job,
        completed=100,
        core_seconds=100 * wall,
        completed_wall_seconds=100 * wall,
        wall_seconds=tuple(wall * factor for factor in (0.8, 0.9, 1, 1.1, 1.2)),
        memory_bytes=tuple(memory * factor for factor in (0.5, 0.6, 0.7, 0.8, 1)),
        per_day=(1000.0,) * 5,
    )

    def check(written) -> CheckReport:
        past = {}
        for name in NAMES:
            past[name] = [replace(row, configuration=f"{name}.fcl")]
        figures = estimate(written, past=past, datasets={}, today=FACTS.today)
        findings = run_checks(written, replace(FACTS, estimate=figures))
        return CheckReport(tuple(findings), figures)

    return check


def chain(**changes):
    return content(stages=tuple(stage(name, **changes) for name in NAMES))


def errors_in(report: CheckReport) -> list[str]:
    return [finding.message for finding in report.findings if finding.blocks]


def test_too_few_jobs_with_too_much_memory_get_one_coherent_set_of_fixes():
    written = chain(
        jobs=10,
        memory_bytes=4000 * GB,
        wall_seconds=4 * HOUR,
        retry_memory_bytes=8 * GB,
        retry_wall_seconds=4 * HOUR,
    )
    check = checks()
    assert errors_in(check(written))

    fixed, applied = apply_fixes(written, check)

    report = check(fixed)
    assert (errors_in(report), report.fixes) == ([], [])
    assert applied
    for fixed_stage in fixed.stages:
        # 500 events took two hours: not ten jobs of 30 days, but 20,000 of four hours.
        assert (fixed_stage.jobs, fixed_stage.events) == (20_000, 20_000_000)
        assert fixed_stage.memory_bytes == 4 * GB
        assert fixed_stage.retry_memory_bytes == 8 * GB
        assert fixed_stage.wall_seconds <= 8 * HOUR


def test_bound_of_retries_is_raised_with_the_first_attempt():
    written = chain(wall_seconds=HOUR, retry_wall_seconds=2 * HOUR, jobs=40_000)
    check = checks()
    fixed, _ = apply_fixes(written, check)
    assert errors_in(check(fixed)) == []
    assert all(made.retry_wall_seconds == made.wall_seconds == 3 * HOUR for made in fixed.stages)


def test_even_number_of_events_is_passed_on_to_the_stages_that_read_them():
    written = chain(jobs=30_001)
    first = replace(written.stages[0], kind="generation")
    written = replace(written, stages=(first, *written.stages[1:]))
    check = checks()
    fixed, _ = apply_fixes(written, check)
    assert errors_in(check(fixed)) == errors_in(check(written))
    assert {made.events for made in fixed.stages} == {666 * 30_001}


def test_no_wall_time_is_offered_that_is_not_enough():
    written = chain(jobs=1)
    [*fixes] = checks()(written).fixes
    assert [fix.label for fix in fixes if "wall_seconds" in str(fix.values)] == []


def test_of_two_fixes_of_one_field_only_that_of_the_worst_finding_is_applied():
    fixes = [
        Fix("Set 4", {"stages.0.jobs": 4, "stages.0.events": 8}),
        Fix("Set 5", {"stages.0.jobs": 5}),
    ]

    def check(written) -> CheckReport:
        findings = ()
        if written.stages[0].jobs == 4000:
            findings = tuple(RuleFinding("r", Severity.WARNING, "", "", fix) for fix in fixes)
        return CheckReport(findings, NO_ESTIMATE)

    assert apply_fixes(content(), check)[1] == fixes[:1]


def test_fix_that_leads_to_an_error_is_left_out_and_a_circle_ends():
    """Fix a leads to an error, and b and c only to each other."""

    def check(written) -> CheckReport:
        jobs = written.stages[0].jobs
        fixes = {4000: [1, 2], 2: [3], 3: [2]}.get(jobs, [])
        findings = [
            RuleFinding(f"to {to}", Severity.WARNING, "", "", Fix(f"{to}", {"stages.0.jobs": to}))
            for to in fixes
        ]
        if jobs == 1:
            findings.append(RuleFinding("bad", Severity.ERROR, "", "broken"))
        return CheckReport(tuple(findings), NO_ESTIMATE)

    fixed, applied = apply_fixes(content(), check)
    assert [fix.label for fix in applied] == ["2"]
    assert apply_fixes(fixed, check) == (fixed, [])


sizes = st.sampled_from([None, 1, 2 * GB, 4 * GB, 100 * GB, 4000 * GB])
times = st.sampled_from([None, 60, HOUR, 4 * HOUR, 30 * HOUR, 30 * 24 * HOUR])
stages = st.builds(
    stage,
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(NAMES),
    release=st.sampled_from(["v09_72", "v10", "not a word", ""]),
    configuration=st.sampled_from(["generation.fcl", "simulation.fcl", "a b"]),
    events=st.one_of(st.none(), st.integers(1, 30_000_000)),
    jobs=st.one_of(st.none(), st.integers(1, 50_000)),
    memory_bytes=sizes,
    wall_seconds=times,
    retry_memory_bytes=sizes,
    retry_wall_seconds=times,
    input_dataset=st.sampled_from(["", "raw", "nova.mc.generation"]),
)


@settings(max_examples=80, deadline=None)
@given(
    written=st.lists(stages, min_size=1, max_size=3).map(
        lambda chosen: content(stages=tuple(chosen))
    ),
    wall=st.floats(1, 40 * HOUR),
    events_per_job=st.floats(1, 100_000),
    memory=st.floats(0.1 * GB, 300 * GB),
)
def test_fixes_never_lead_to_more_errors_and_end_where_none_helps(
    written, wall, events_per_job, memory
):
    check = checks(wall=wall, events_per_job=events_per_job, memory=memory)
    fixed, applied = apply_fixes(written, check)
    before = check(written)
    after = check(fixed)
    assert len(errors_in(after)) <= len(errors_in(before))
    assert bool(applied) == (fixed != written)
    assert apply_fixes(fixed, check) == (fixed, [])
