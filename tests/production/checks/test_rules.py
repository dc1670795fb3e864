"""Each rule finds what it is for, at the right field, lets a good request pass,
and its fix ends the problem.
"""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from apps.production.domain.checks import Facts, Fix, Problem, Rule, Severity, rule
from apps.production.domain.checks.base import (
    ClusterLimits,
    EarlierBlock,
    EarlierStage,
    OtherRequest,
    PlannedWindow,
    ServiceNow,
    StageBefore,
)
from apps.production.domain.checks.registry import DRAFT, RULES, rules
from apps.production.domain.checks.report import MOST_OF_A_RULE, check_shape, run, run_checks
from apps.production.domain.content import scan as scans
from apps.production.domain.content.model import StageContent
from apps.production.domain.estimates.figures import PastStage, estimate
from apps.production.domain.forecast import Days
from apps.production.domain.outputs.datasets import Dataset
from tests.factories.checks import blocking
from tests.factories.requests import AT, content, stage
from tests.factories.workflows import of_type

DAY = timedelta(days=1)
FACTS = Facts(today=AT.date(), services=frozenset({"samweb", "dcache"}))


def one(**changes):
    return content(stages=(stage("reco", **changes),))


def args(**values) -> StageContent:
    return stage("reco", arguments=values)


GENERATOR = {
    "output_type": "gen",
    "generator": "GENIE",
    "generator_version": "3_04_02",
    "geometry": "nd",
}


def monte_carlo(*, run_block="900001-900100", first_seed=1000, **changes):
    generation = stage("generation", kind="generation", arguments=GENERATOR, **changes)
    simulation = stage(
        "simulation", kind="simulation", arguments={"input_type": "gen", "output_type": "sim"}
    )
    stages = (generation, simulation)
    arguments = {"run_block": run_block, "first_seed": first_seed}
    return of_type("monte_carlo", arguments=arguments, stages=stages)


def keep_up(**arguments):
    given = {
        "cadence": 3600,
        "split": "per file",
        "most_in_flight": 2000,
        "stop_on": "2026-12-10",
        **arguments,
    }
    return of_type(
        "keep_up",
        arguments=given,
        stages=(stage("reco", kind="reconstruction", input_dataset="raw"),),
    )


def merge(jobs=10, **arguments):
    given = {"files": 1000, "target_bytes": 4 * 10**9, **arguments}
    return of_type(
        "merge",
        stages=(stage("merge", kind="merge", input_dataset="small", jobs=jobs, arguments=given),),
    )


def merged(input_dataset="", **arguments):
    given = {"split": "by size", "group_bytes": 4 * 10**9, **arguments}
    reco = stage("reco", kind="reconstruction", input_dataset="raw")
    joined = stage("merge", kind="merge", jobs=None, input_dataset=input_dataset, arguments=given)
    return of_type("file_processing_merged", stages=(reco, joined))


def kept_up_and_merged(*kinds):
    whole = keep_up()
    return replace(whole, stages=(*whole.stages, *(stage(kind, kind=kind) for kind in kinds)))


def other(**changes) -> OtherRequest:
    return OtherRequest(key="NOVA-0001", **changes)


def past(*, of=None, **changes) -> Facts:
    """Facts with past jobs of a stage, and the estimate of a request with it."""
    row = {
        "request_key": "NOVA-0001",
        "release": "v09_72",
        "configuration": "reco.fcl",
        "completed": 100,
        "core_seconds": 100 * 9000.0,
        "completed_wall_seconds": 100 * 9000.0,
        "wall_seconds": (7000.0, 8000.0, 9000.0, 10_000.0, 12_000.0),
        "memory_bytes": (1e9, 1.5e9, 2e9, 2.5e9, 3e9),
        "per_day": (1000.0,) * 5,
    }
    return with_past(of or one(), PastStage(**{**row, **changes}))


def with_past(written, *rows: PastStage) -> Facts:
    return replace(
        FACTS, estimate=estimate(written, past={"reco": rows}, datasets={}, today=FACTS.today)
    )


def facts(**changes) -> Facts:
    return replace(FACTS, **changes)


def data(**numbers) -> Facts:
    return facts(
        datasets={
            "raw": Dataset("raw", **numbers),
            "nova.mc.reco": Dataset("nova.mc.reco", events=5),
        }
    )


def reading(dataset="raw", **more):
    return one(input_dataset=dataset, **more)


def service(state="up", *windows) -> Facts:
    return facts(service_states={"samweb": ServiceNow("SAM", state, windows)})


def before(name="reco", **changes) -> EarlierStage:
    """A stage of an earlier request, of an hour for each job."""
    return EarlierStage("NOVA-0001", name, **{"jobs": 4000, "wall_seconds": 3600, **changes})


def writing(event_bytes):
    """A stage that writes 20 million events of this size."""
    return content(stages=(args(output_event_bytes=event_bytes),))


def sized(written, largest) -> Facts:
    """Facts with the estimate of a request, and the largest earlier output of its stage."""
    return replace(with_past(written), largest_outputs={"reco": largest})


SOON = PlannedWindow("Upgrade", AT + DAY, AT + 2 * DAY)
FAR = PlannedWindow("Move", AT + 90 * DAY, AT + 91 * DAY)
NEEDS = one(services=("samweb",))
GOOD = content()
EARLIER, LATER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 9, tzinfo=UTC)


#: Rule: where it fires (content, facts, path), and what is nearest to it without firing (content,
#: facts).
def scan(text="energy = 1, 2", /, **changes):
    values = {"configuration": "reco_{energy}.fcl", "output_dataset": "mc_{energy}", **changes}
    return content(scan=text, stages=(stage("reco", **values),))


CASES = {
    "scan_readable": ((scan("energy: 1, 2"), FACTS, "scan"), (scan(), FACTS)),
    "scan_used": ((scan(configuration="reco.fcl"), FACTS, "scan"), (scan(), FACTS)),
    "scan_outputs": (
        (scan(output_dataset="mc"), FACTS, "stages.0.output_dataset"),
        (scan(), FACTS),
    ),
    "scan_shares": ((scan(jobs=401), FACTS, "stages.0.jobs"), (scan(jobs=400), FACTS)),
    "lengths": ((content(title="x" * 201), FACTS, "title"), (content(title="x" * 200), FACTS)),
    "stage_count": (
        (content(stages=(stage(),) * 101), FACTS, "stages"),
        (content(stages=(stage(),) * 100), FACTS),
    ),
    "number_ranges": ((one(events=0), FACTS, "stages.0.events"), (one(events=1), FACTS)),
    "known_values": ((one(services=("nfs",)), FACTS, "stages.0.services"), (NEEDS, FACTS)),
    "arguments": ((content(arguments={"x": 1}), FACTS, "arguments.x"), (GOOD, FACTS)),
    "required": ((content(title=""), FACTS, "title"), (GOOD, FACTS)),
    "deadline_in_future": (
        (content(deadline=AT.date()), FACTS, "deadline"),
        (content(deadline=AT.date() + DAY), FACTS),
    ),
    "priority_reason": (
        (content(requested_priority="high"), FACTS, "priority_reason"),
        (content(requested_priority="high", priority_reason="freeze"), FACTS),
    ),
    "stage_names": ((content(stages=(stage("a b"),)), FACTS, "stages.0.name"), (GOOD, FACTS)),
    "shell_safe_names": (
        (one(configuration="my file.fcl"), FACTS, "stages.0.configuration"),
        (one(configuration="path/to/my_file.fcl"), FACTS),
    ),
    "deadline_within_two_years": (
        (content(deadline=date(2029, 1, 1)), FACTS, "deadline"),
        (content(deadline=date(2027, 1, 1)), FACTS),
    ),
    "purpose_informative": ((content(purpose="physics"), FACTS, "purpose"), (GOOD, FACTS)),
    "title_informative": ((content(title="MC"), FACTS, "title"), (GOOD, FACTS)),
    "reason_without_priority": (
        (content(priority_reason="freeze"), FACTS, "priority_reason"),
        (content(priority_reason="freeze", requested_priority="high"), FACTS),
    ),
    "chain": (
        (
            content(stages=(stage("a", output_dataset="x"), stage("b", output_dataset="x"))),
            FACTS,
            "stages.1.output_dataset",
        ),
        (GOOD, FACTS),
    ),
    "counts": ((one(jobs=10, events=9), FACTS, "stages.0.jobs"), (one(jobs=9, events=9), FACTS)),
    "output_type": (
        (
            content(stages=(args(output_type="gen"), stage("b", arguments={"input_type": "raw"}))),
            FACTS,
            "stages.1.arguments.input_type",
        ),
        (monte_carlo(), FACTS),
    ),
    "event_totals": (
        (content(stages=(stage("a"), stage("b", events=10_000_000))), FACTS, "stages.1.events"),
        (
            content(stages=(stage("a", arguments={"passing": 0.5}), stage("b", events=10_000_000))),
            FACTS,
        ),
    ),
    "generation_has_no_input": (
        (monte_carlo(input_dataset="x"), FACTS, "stages.0.input_dataset"),
        (monte_carlo(), FACTS),
    ),
    "first_stage_has_input": (
        (
            of_type("reprocessing", stages=(stage(kind="reconstruction"),)),
            FACTS,
            "stages.0.input_dataset",
        ),
        (
            of_type("reprocessing", stages=(stage(kind="reconstruction", input_dataset="raw"),)),
            FACTS,
        ),
    ),
    "same_release": (
        (content(stages=(stage("a"), stage("b", release="v09_73"))), FACTS, "stages.1.release"),
        (GOOD, FACTS),
    ),
    "same_geometry": (
        (
            content(stages=(args(geometry="nd1"), stage("b", arguments={"geometry": "nd2"}))),
            FACTS,
            "stages.1.arguments.geometry",
        ),
        (
            content(
                stages=(args(geometry="nd1"), stage("b"), stage("c", arguments={"geometry": "nd1"}))
            ),
            FACTS,
        ),
    ),
    "events_per_job": (
        (one(jobs=4000, events=8000), FACTS, "stages.0.jobs"),
        (one(jobs=4000, events=40_000), FACTS),
    ),
    "even_jobs": (
        (monte_carlo(events=20_000_001), FACTS, "stages.0.events"),
        (monte_carlo(), FACTS),
    ),
    "file_size": (
        (content(stages=(args(output_event_bytes=100),)), FACTS, "stages.0.jobs"),
        (content(stages=(args(output_event_bytes=250_000),)), FACTS),
    ),
    "merge_size": (
        (merge(target_bytes=10**7), FACTS, "stages.0.arguments.target_bytes"),
        (merge(), FACTS),
    ),
    "merge_jobs": ((merge(jobs=1000), FACTS, "stages.0.jobs"), (merge(jobs=999), FACTS)),
    "files_for_every_job": (
        (content(stages=(args(files=3999),)), FACTS, "stages.0.jobs"),
        (content(stages=(args(files=4000),)), FACTS),
    ),
    "seed_range": (
        (monte_carlo(first_seed=899_996_002), FACTS, "arguments.first_seed"),
        (monte_carlo(first_seed=899_996_001), FACTS),
    ),
    "stop_in_future": (
        (keep_up(stop_on="2026-11-20"), FACTS, "arguments.stop_on"),
        (keep_up(), FACTS),
    ),
    "stop_by_deadline": (
        (keep_up(stop_on="2026-12-13"), FACTS, "deadline"),
        (keep_up(stop_on="2026-12-12"), FACTS),
    ),
    "files_listed": (
        (keep_up(), facts(listing_fault="No catalogue."), "stages.0.input_dataset"),
        (GOOD, facts(listing_fault="No catalogue.")),
    ),
    "split_complete": (
        (keep_up(split="per N files"), FACTS, "arguments.files_per_job"),
        (keep_up(split="per N files", files_per_job=4), FACTS),
    ),
    "merge_has_source": (
        (merged(input_dataset="elsewhere"), FACTS, "stages.1.input_dataset"),
        (merged(), FACTS),
    ),
    "merge_comes_last": (
        (kept_up_and_merged("merge", "analysis"), FACTS, "stages.2.kind"),
        (kept_up_and_merged("analysis", "merge"), FACTS),
    ),
    "merge_groups_complete": (
        (merged(split="per N files"), FACTS, "stages.1.arguments.files_per_job"),
        (merged(split="per N files", files_per_job=20), FACTS),
    ),
    "job_cap_sufficient": (
        (keep_up(most_in_flight=66), FACTS, "arguments.most_in_flight"),
        (keep_up(most_in_flight=67), FACTS),
    ),
    "cadence_within_latency": (
        (keep_up(latency=1800), FACTS, "arguments.cadence"),
        (keep_up(latency=3600), FACTS),
    ),
    "fits_cluster": (
        (
            one(),
            facts(offers=(ClusterLimits("a", 3 * 10**9), ClusterLimits("b", 2 * 10**9))),
            "stages.0.memory_bytes",
        ),
        (one(), facts(offers=(ClusterLimits("a", 3 * 10**9), ClusterLimits("b", None)))),
    ),
    "retries_get_no_less": (
        (
            one(memory_bytes=4 * 10**9, retry_memory_bytes=3 * 10**9),
            FACTS,
            "stages.0.retry_memory_bytes",
        ),
        (one(memory_bytes=4 * 10**9, retry_memory_bytes=4 * 10**9), FACTS),
    ),
    "memory_fits_node": (
        (
            one(memory_bytes=900 * 10**9),
            facts(largest_node_bytes=512 * 10**9),
            "stages.0.memory_bytes",
        ),
        (one(memory_bytes=512 * 10**9), facts(largest_node_bytes=512 * 10**9)),
    ),
    "memory_usual": (
        (one(memory_bytes=12_000_000_001), past(), "stages.0.memory_bytes"),
        (one(memory_bytes=12_000_000_000), past()),
    ),
    "jobs_usual": (
        (
            one(jobs=40_001),
            facts(earlier_stages=(before(), before("sim", jobs=9000))),
            "stages.0.jobs",
        ),
        (one(jobs=40_000), facts(earlier_stages=(before(), before("sim", jobs=9000)))),
    ),
    "hours_usual": (
        (
            one(jobs=2001, wall_seconds=10 * 3600),
            facts(earlier_stages=(before(jobs=2000),)),
            "stages.0.jobs",
        ),
        (one(jobs=2000, wall_seconds=10 * 3600), facts(earlier_stages=(before(jobs=2000),))),
    ),
    "disk_usual": (
        (writing(50_001), sized(writing(50_001), 10**11), "stages.0.arguments.output_event_bytes"),
        (writing(50_000), sized(writing(50_000), 10**11)),
    ),
    "run_block_usual": (
        (
            monte_carlo(jobs=4100),
            facts(earlier_blocks=(EarlierBlock(400, 100),)),
            "arguments.run_block",
        ),
        (monte_carlo(jobs=4000), facts(earlier_blocks=(EarlierBlock(400, 100),))),
    ),
    "services_up": ((NEEDS, service("down"), "stages.0.services"), (NEEDS, service())),
    "no_downtime": ((NEEDS, service("up", SOON), "stages.0.services"), (NEEDS, service("up", FAR))),
    "run_numbers_unique": (
        (
            monte_carlo(),
            facts(others=(other(runs={"run_block": "900100-900200"}),)),
            "arguments.run_block",
        ),
        (monte_carlo(), facts(others=(other(runs={"run_block": "900101-900200"}),))),
    ),
    "runs_not_processed": (
        (
            of_type(
                "reprocessing", arguments={"runs": "1-9"}, stages=(stage(input_dataset="raw"),)
            ),
            facts(
                others=(
                    other(runs={"runs": "5"}, release="v09_72", configuration="generation.fcl"),
                )
            ),
            "arguments.runs",
        ),
        (
            of_type(
                "reprocessing", arguments={"runs": "1-9"}, stages=(stage(input_dataset="raw"),)
            ),
            facts(
                others=(
                    other(runs={"runs": "5"}, release="v09_71", configuration="generation.fcl"),
                )
            ),
        ),
    ),
    "seeds_unique": (
        (
            monte_carlo(),
            facts(others=(other(first_seed=4999, jobs=10, configuration="generation.fcl"),)),
            "arguments.first_seed",
        ),
        (
            monte_carlo(),
            facts(others=(other(first_seed=5000, jobs=10, configuration="generation.fcl"),)),
        ),
    ),
    "title_unique": (
        (GOOD, facts(others=(other(title="nd rock muons, 2026 BEAM"),)), "title"),
        (GOOD, facts(others=(other(title="ND rock muons, 2025 beam"),))),
    ),
    "output_unique": (
        (one(), facts(written_by={"nova.mc.reco": "NOVA-0001"}), "stages.0.output_dataset"),
        (one(), facts(written_by={"nova.mc.other": "NOVA-0001"})),
    ),
    "catalogue_available": ((GOOD, facts(catalogue_fault="it is gone"), "stages"), (GOOD, FACTS)),
    "output_is_new": (
        (one(), data(), "stages.0.output_dataset"),
        (one(output_dataset="new"), data()),
    ),
    "input_exists": ((reading("rwa"), data(), "stages.0.input_dataset"), (reading(), data())),
    "input_not_empty": (
        (reading(), data(files=0), "stages.0.input_dataset"),
        (reading(), data(files=1)),
    ),
    "input_counts": (
        (reading(), data(events=19_000_000), "stages.0.events"),
        (reading(), data(events=20_000_000)),
    ),
    "input_has_locations": (
        (reading(), data(files_located=12, files_without_location=4), "stages.0.input_dataset"),
        (reading(), data(files_located=12, files_without_location=0)),
    ),
    "input_on_disk": (
        (reading(), data(files_located=12, files_on_tape_only=4), "stages.0.input_dataset"),
        (reading(), data(files_located=12, files_on_tape_only=0)),
    ),
    "contact_is_member": (
        (GOOD, facts(former_contact="ada"), "purpose"),
        (GOOD, facts()),
    ),
    "deadline_reachable": ((one(), past(per_day=(100.0,) * 5), "deadline"), (one(), past())),
    "wall_time_sufficient": (
        (one(wall_seconds=11_000), past(), "stages.0.wall_seconds"),
        (one(wall_seconds=12_000), past()),
    ),
    # Past jobs took 7000 s or more, nine of ten of them.
    "wall_time_possible": (
        (one(wall_seconds=1749), past(), "stages.0.wall_seconds"),
        (one(wall_seconds=1750), past()),
    ),
    "wall_time_plausible": (
        (one(wall_seconds=6999), past(), "stages.0.wall_seconds"),
        (one(wall_seconds=7000), past()),
    ),
    "wall_time_not_excessive": (
        (one(wall_seconds=48_001), past(), "stages.0.wall_seconds"),
        (one(wall_seconds=48_000), past()),
    ),
    "memory_sufficient": (
        (one(memory_bytes=2_900_000_000), past(), "stages.0.memory_bytes"),
        (one(memory_bytes=3_000_000_000), past()),
    ),
    "job_length": ((one(), past(wall_seconds=(60.0,) * 5), "stages.0.jobs"), (one(), past())),
    "known_release": (
        (one(release="v09_27"), facts(releases=frozenset({"v09_72"})), "stages.0.release"),
        (one(), facts(releases=frozenset({"v09_72"}))),
    ),
    "usual_services": (
        (one(), facts(stages_before={"reco": StageBefore(3, {"samweb": 2})}), "stages.0.services"),
        (one(), facts(stages_before={"reco": StageBefore(4, {"samweb": 2})})),
    ),
    "configuration_tested": (
        (one(), past(configuration="old.fcl"), "stages.0.configuration"),
        (one(), past()),
    ),
    "test_up_to_date": (
        (
            one(),
            facts(completed_at={"reco": EARLIER}, changed_at={0: LATER}),
            "stages.0.configuration",
        ),
        (one(), facts(completed_at={"reco": LATER}, changed_at={0: EARLIER})),
    ),
}


def found_by(name: str, written, known: Facts) -> list[Problem]:
    return list(rules()[name](written, known))


def test_deadline_rule_names_the_likeliest_end_if_it_is_neither_bound():
    first, middle, last = (date(2027, month, 3) for month in (1, 2, 3))
    for ends, when in (
        (Days(first, middle, last), "between 3 Jan 2027 and 3 Mar 2027, most likely on 3 Feb 2027"),
        (Days(first, last, last), "between 3 Jan 2027 and 3 Mar 2027"),
        (Days.exactly(last), "on 3 Mar 2027"),
    ):
        known = facts(estimate=replace(past().estimate, ends=ends))
        [problem] = found_by("deadline_reachable", one(), known)
        assert f"would finish {when}. It will miss the deadline." in problem.message


def test_wall_time_names_the_events_per_job_to_which_past_times_are_scaled():
    short = one(wall_seconds=8000, events=500, jobs=10)
    [problem] = found_by("wall_time_sufficient", short, past(of=short, events_per_job=50.0))
    assert "scaled to 50 events per job) took more than" in problem.message


def test_wall_time_that_is_too_short_for_all_jobs_is_said_once_and_in_its_words():
    """It prevents submission only if many jobs of this release and configuration show it."""
    short = one(wall_seconds=600, events=500, jobs=10)
    names = ("wall_time_possible", "wall_time_plausible", "wall_time_sufficient")

    def problems_with(known: Facts) -> list[str]:
        return [name for name in names if found_by(name, short, known)]

    equal = past(of=short, events_per_job=50.0)
    assert problems_with(equal) == ["wall_time_possible"]
    [problem] = found_by("wall_time_possible", short, equal)
    assert problem.message == (
        "Nearly no job of reco will finish within 10 min: by 100 past jobs (same release and "
        "configuration, scaled to 50 events per job), a job needs about 2 h 30 min."
    )
    assert problem.fix == Fix("Use 4 h", {"stages.0.wall_seconds": 4 * 3600})

    assert problems_with(past(of=short, configuration="other.fcl")) == ["wall_time_plausible"]
    assert problems_with(past(of=short, completed=19)) == ["wall_time_plausible"]
    long_jobs = past(of=short, wall_seconds=(50 * 86_400.0,) * 5)
    assert [problem.fix for problem in found_by("wall_time_possible", short, long_jobs)] == [None]


def test_every_rule_is_tried_here():
    assert set(CASES) == set(RULES.builtins)
    assert len(CASES) >= 30


@pytest.mark.parametrize("name", CASES)
def test_rule_fires(name):
    written, known, path = CASES[name][0]
    problems = found_by(name, written, known)
    assert [problem.path for problem in problems] == [path] * len(problems)
    assert problems
    assert all(len(problem.message) > 10 for problem in problems)


@pytest.mark.parametrize("name", CASES)
def test_rule_does_not_fire(name):
    written, known = CASES[name][1]
    assert found_by(name, written, known) == []


@pytest.mark.parametrize("name", CASES)
def test_one_click_mends_it_and_breaks_nothing(name):
    written, known, _ = CASES[name][0]
    for problem in found_by(name, written, known):
        if problem.fix is not None:
            fixed = problem.fix.applied_to(written)
            assert problem.path not in {left.path for left in found_by(name, fixed, known)}
            assert check_shape(fixed, known).keys() <= check_shape(written, known).keys()


def test_jobs_that_are_too_short_are_joined_by_what_past_jobs_took():
    written = one(events=400_000, jobs=4000)
    row = {
        "completed": 50,
        "core_seconds": 3e3,
        "completed_wall_seconds": 3e3,
        "per_day": (1000.0,) * 5,
    }
    short = PastStage(request_key="NOVA-0001", events_per_job=100, wall_seconds=(60.0,) * 5, **row)
    (problem,) = found_by("job_length", written, with_past(written, short))
    assert problem.message.startswith(
        "A job takes about 1 min, by 50 past jobs (same stage name, any release and configuration, "
        "scaled to 100 events per job)."
    )
    fixed = problem.fix.applied_to(written)
    # So many jobs divide the events.
    assert fixed.stages[0].jobs == 16
    assert found_by("job_length", fixed, with_past(fixed, short)) == []


def test_unusual_figures_of_a_first_request_are_reported_too():
    huge = stage(
        "generation",
        kind="generation",
        memory_bytes=900 * 10**9,
        jobs=1_000_000,
        wall_seconds=8 * 3600,
    )
    written = of_type("monte_carlo", arguments={"run_block": "1-200"}, stages=(huge,))
    found = {finding.rule: finding for finding in run_checks(written, FACTS)}
    assert {"memory_usual", "jobs_usual", "hours_usual", "run_block_usual"} <= found.keys()
    assert all(
        not found[name].blocks
        for name in ("memory_usual", "jobs_usual", "hours_usual", "run_block_usual")
    )
    assert found["hours_usual"].message.startswith("8,000,000 h if every job runs to its limit.")
    assert (
        "200 run numbers for 1,000,000 jobs: 5,000 jobs per run."
        in found["run_block_usual"].message
    )


def test_every_rule_says_what_holds_in_one_line():
    for name, found in rules().items():
        assert found.description.endswith("."), name
        assert len(found.description) < 110, name


def test_only_the_shape_keeps_a_draft_from_being_saved():
    assert {name for name, found in rules().items() if found.severity == Severity.INVALID} == set(
        DRAFT
    )


def test_warning_does_not_block():
    written = content(title="MC", stages=(stage("a"), stage("b", release="v09_73")))
    assert blocking(written, FACTS) == {}
    assert [(f.rule, f.severity, f.blocks) for f in run_checks(written, FACTS)] == [
        ("title_informative", "warning", False),
        ("same_release", "warning", False),
    ]


def test_gravest_comes_first():
    written = content(title="MC", deadline=AT.date(), stages=(stage("a", events=0),))
    severities = [found.severity for found in run_checks(written, FACTS)]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] == "invalid"


def test_a_rule_that_breaks_is_named_and_the_others_still_speak():
    @rule(Severity.ERROR)
    def breaks(written, known):
        """It breaks."""
        yield Problem("title", "first")
        raise ZeroDivisionError

    found = run(
        {"breaks": breaks, "deadline_in_future": rules()["deadline_in_future"]},
        content(deadline=AT.date()),
        FACTS,
    )
    assert [(f.rule, f.path, f.blocks) for f in found] == [
        ("deadline_in_future", "deadline", True),
        ("breaks", "", False),
    ]
    assert "ZeroDivisionError" in found[1].message


def test_a_rule_reports_so_many_problems_at_most():
    unknown = tuple(f"service-{number}" for number in range(2 * MOST_OF_A_RULE))
    written = content(stages=(stage("reco", services=unknown),))
    findings = [found for found in run_checks(written, FACTS) if found.rule == "known_values"]
    assert len(findings) == MOST_OF_A_RULE + 1
    assert findings[-1].message == "There are more than 1,000 such problems. Fix these first."
    assert (findings[-1].path, findings[-1].blocks) == ("stages.0.services", True)


def test_scan_beyond_its_length_is_neither_read_nor_kept():
    """It took 20 MB of memory for each text of 2 MB, and 2 to the power of 20,000 has no end."""
    kept = scans._read_lines.cache_info().currsize
    written = scan("\n".join(f"a{number} = 1, 2" for number in range(20_000)))
    assert scans.scan_of(written).faults == ("A scan has at most 2,000 characters.",)
    assert scans._read_lines.cache_info().currsize == kept
    assert [f.rule for f in run_checks(written, FACTS) if f.path == "scan"] == [
        "lengths",
        "scan_readable",
    ]
    longest = scan("e = 1, 2" + " " * (scans.MAX_CHARACTERS - 8))
    assert not [f for f in run_checks(longest, FACTS) if f.rule in {"lengths", "scan_readable"}]


def test_third_party_rule_is_found_by_its_entry_point(monkeypatch):
    from importlib.metadata import EntryPoint

    entry = EntryPoint("no_mondays", "tests.production.checks.test_rules:no_mondays", RULES.group)
    monkeypatch.setitem(RULES._found, "no_mondays", entry)
    assert list(rules())[-1] == "no_mondays"
    assert "deadline" in blocking(content(deadline=date(2026, 12, 14)), FACTS)


@rule(Severity.ERROR)
def no_mondays(written, known):
    """No deadline is a Monday."""
    if written.deadline and written.deadline.weekday() == 0:
        yield Problem(
            "deadline",
            "Not on a Monday, please.",
            Fix("Tuesday", {"deadline": written.deadline + DAY}),
        )


def test_mend_reaches_every_kind_of_field():
    written = monte_carlo()
    values = {
        "title": "T",
        "arguments.first_seed": 5,
        "stages.1.release": "v1",
        "stages.1.arguments.input_type": "x",
    }
    fixed = Fix("all", values).applied_to(written)
    assert (fixed.title, fixed.arguments["first_seed"], fixed.stages[1].release) == ("T", 5, "v1")
    assert fixed.stages[1].arguments["input_type"] == "x"
    assert fixed.stages[0] == written.stages[0]
    assert (
        "input_type"
        not in Fix("none", {"stages.1.arguments.input_type": ""})
        .applied_to(fixed)
        .stages[1]
        .arguments
    )
    assert isinstance(no_mondays, Rule)


def test_missing_services_of_all_stages_are_one_warning_with_one_fix():
    stages = (stage("gen"), stage("sim", services=("nfs",)), stage("reco", services=("dcache",)))
    before = StageBefore(4, {"dcache": 4, "samweb": 3, "rare": 1})
    known = facts(stages_before={"gen": before, "simulation": before, "reco": before})
    (problem,) = found_by("usual_services", content(stages=stages), known)
    assert (problem.path, problem.message) == (
        "stages.0.services",
        (
            "Most earlier stages named gen and sim needed dcache and samweb; those named reco "
            "needed samweb."
        ),
    )
    assert problem.fix == Fix(
        "Add all",
        {
            "stages.0.services": ("dcache", "samweb"),
            "stages.1.services": ("nfs", "dcache", "samweb"),
            "stages.2.services": ("dcache", "samweb"),
        },
    )
    (problem,) = found_by("usual_services", content(stages=stages[2:]), known)
    assert problem.fix.label == "Add samweb"


def test_places_of_input_files_are_counted_and_silent_where_unknown():
    def messages(**numbers):
        findings = run_checks(reading(), data(**numbers))
        rules_of_places = {"input_has_locations", "input_on_disk"}
        return [row.message for row in findings if row.rule in rules_of_places]

    assert messages(files_located=4000, files_without_location=1, files_on_tape_only=1200) == [
        "1 of 4,000 files has no location in the catalogue.",
        "1,200 of 4,000 files are on tape only.",
    ]
    assert messages() == messages(files_located=4000) == []
    assert messages(files_located=0, files_without_location=0, files_on_tape_only=0) == []
