"""A chain's end: stages with a pace end by it; those that wait take what past jobs took,
one after the other.
"""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.core.domain.health import beat_heart
from apps.core.tasks import deliver_waiting
from apps.jobs.domain.records.jobs import TOTALS_HEART
from apps.jobs.models import Collection
from apps.production.domain.holds import place_hold
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.outputs.acceptance import record_acceptance
from apps.production.domain.outputs.counts import MUST_BE_LOCATED
from apps.production.enums import Verb
from apps.production.models import Attention, Request, ShareUse, Stage, StageHistory
from apps.progress.domain.needs import note_attention
from apps.progress.domain.progress import progress_now
from apps.progress.domain.stored_forecasts import keep_forecasts
from tests.factories import clusters
from tests.factories.history import history
from tests.factories.jobs import failed, record
from tests.factories.requests import request_in, stage
from tests.pages import text_of
from tests.progress.test_transitions import END, SENT, ran

CHAIN = ("generation", "simulation", "merge")
PACE = [50.0, 50.0, 100.0, 200.0, 200.0]
DAY = timedelta(days=1)


@pytest.fixture
def running(nova, liaison, approver):
    """Three stages of 100, 100 and 10 jobs; of the last two,
    an earlier request made from 50 to 200 a day.
    """
    people = {"by": liaison, "experiment": nova, "approver": approver}
    stages = tuple(stage(name, jobs=10 if name == "merge" else 100) for name in CHAIN)
    earlier = request_in("queued", **people, stages=stages)
    for name in CHAIN[1:]:
        history(earlier, name=name, configuration=f"{name}.fcl", per_day=PACE)
    return request_in("running", **people, stages=stages)


def fresh(request):
    return Request.objects.get(pk=request.pk)


def ends(request, at=END):
    return [stage.expected for stage in progress_now(fresh(request), at=at, computed=True).stages]


def shown(request):
    return [stage.expected for stage in progress_now(fresh(request), at=END).stages]


def half_done(alps, request):
    """Of the first stage 50 of 100 jobs, in five hours: it ends in five more."""
    jobs = (
        record(n, submitted_at=SENT, ended_at=END - timedelta(hours=5) + timedelta(seconds=n))
        for n in range(50)
    )
    ran(alps, request, "generation", *jobs)


def test_stages_that_wait_end_one_after_the_other_with_a_wider_interval(alps, running):
    half_done(alps, running)
    first, second, third = ends(running)
    assert (first.at, first.early, first.late) == (END + timedelta(hours=5),) * 3
    assert (second.early, second.at, second.late) == (
        first.at + DAY / 2,
        first.at + DAY,
        first.at + 2 * DAY,
    )
    assert second.basis == "after generation, by 100 past jobs: same release and configuration"
    # Ten jobs take a tenth of that, and never less than one job took.
    least = timedelta(seconds=9000)
    assert (third.early, third.at) == (second.early + least, second.at + least)
    assert third.late == second.late + DAY / 5
    whole = progress_now(fresh(running), at=END, computed=True).expected
    assert (whole.early, whole.at, whole.late) == (third.early, third.at, third.late)


def test_keep_up_ends_no_earlier_than_its_stop_date(alps, running):
    half_done(alps, running)
    stop = (END + timedelta(days=40)).date()
    Request.objects.filter(pk=running.pk).update(arguments={"stop_on": stop.isoformat()})
    for end in ends(running):
        assert (end.at.date(), end.basis[:27]) == (stop, "new files are processed unt")
    whole = progress_now(fresh(running), at=END, computed=True).expected
    assert whole.at.date() == stop


def test_stage_ends_no_earlier_than_the_stage_whose_output_it_reads(alps, running):
    half_done(alps, running)
    jobs = (
        record(
            1000 + n, submitted_at=SENT, ended_at=END - timedelta(hours=5) + timedelta(seconds=n)
        )
        for n in range(90)
    )
    ran(alps, running, CHAIN[1], *jobs)
    first, second, _ = ends(running)
    assert second.at == first.at == END + timedelta(hours=5)
    assert second.basis == "not before generation, whose output it reads"


def test_one_stage_without_past_jobs_and_time_limit_leaves_the_end_of_the_chain_unknown(
    alps, running
):
    half_done(alps, running)
    Stage.objects.filter(request=running, position=1).update(name="overlay", wall_seconds=None)
    _, second, third = ends(running)
    assert (second.at, second.basis) == (None, "no past jobs of this stage")
    assert (third.at, third.basis) == (None, "waits for overlay, whose end is unknown")
    whole = progress_now(fresh(running), at=END, computed=True).expected
    assert (whole.at, whole.basis) == (None, "overlay: no past jobs of this stage")


def test_without_past_jobs_the_time_limit_counts_at_the_share_of_the_experiment(
    running, nova, dune
):
    Stage.objects.filter(request=running).update(jobs=100, wall_seconds=12 * 3600)
    StageHistory.objects.all().delete()
    assert ends(running)[0].basis == "no past jobs of this stage", "nor use of any experiment"
    # Both experiments used 40 cores in the mean, and have equal shares.
    for experiment, cores in ((nova, 0), (dune, 40)):
        ShareUse.objects.create(
            experiment=experiment, core_seconds=cores * 30 * 86_400, days=30, as_of=END
        )
    began = SENT - timedelta(hours=1)
    first, second, _ = ends(running)
    assert (first.early, first.at, first.late) == (began + 2.5 * DAY,) * 3, (
        "20 at once, two a day each"
    )
    assert (
        first.basis
        == "from the start, by its time limit with about 20 jobs at once, as it has no past jobs"
    )
    assert second.at == began + 5 * DAY
    ShareUse.objects.update(core_seconds=30 * 86_400)
    assert "about 1 job at a time" in ends(running)[0].basis


def test_a_new_portal_says_that_the_end_is_unknown_and_notifies_nobody(running, nova):
    """What few jobs took so far shows nothing: no end years ahead, which would count as late."""
    Stage.objects.filter(request=running).update(jobs=5_000, wall_seconds=8 * 3600)
    Request.objects.filter(pk=running.pk).update(deadline=END.date() + timedelta(days=30))
    StageHistory.objects.all().delete()
    ShareUse.objects.create(experiment=nova, core_seconds=5 * 86_400, days=30, as_of=END)
    assert ends(running)[0].basis == "no past jobs of this stage"
    history(Request.objects.earliest("pk"), name="generation", completed=3, per_day=(1.0,) * 5)
    assert ends(running)[0].basis == "only 3 past jobs of this stage: too few to estimate"
    keep_forecasts(at=END)
    note_attention(at=END)
    assert not Attention.objects.filter(request=running, kind="late").exists()


def test_first_jobs_of_a_stage_show_no_pace(alps, running):
    """Some run before the others, so that the next ones wait for them."""
    Stage.objects.filter(request=running).update(jobs=5_000)
    half_done(alps, running)
    assert ends(running)[0].basis == "50 jobs in 5 h, 4,950 to go: too few to estimate yet"
    history(Request.objects.earliest("pk"), name="generation", per_day=(500.0,) * 5)
    first = ends(running)[0]
    assert first.at == SENT - timedelta(hours=1) + 10 * DAY
    assert first.basis.startswith("from the start, by 100 past jobs")
    # Half a day is enough for jobs that are not the first few.
    later = END + timedelta(hours=8)
    accounting_read_until(alps, later)
    beat_heart(name=TOTALS_HEART, at=later)
    assert ends(running, at=later)[0].basis == "50 jobs in 13 h, 4,950 to go"


def test_a_job_whose_retry_completed_counts_once_and_is_not_failed(alps, running):
    times = {"submitted_at": SENT, "ended_at": END - timedelta(hours=2)}
    Stage.objects.filter(request=running, position=0).update(jobs=2)
    retry = record(2, attempt=2, **times)
    ran(alps, running, "generation", record(1, **times), failed(2, attempt=1, **times), retry)
    now = progress_now(fresh(running), at=END)
    assert (now.completed, now.failed_now, now.failed) == (2, 0, 1)


def test_jobs_that_failed_and_are_not_retried_leave_no_end(alps, running):
    """Whatever the pace was: nothing that runs would complete the stage."""
    times = {"submitted_at": SENT, "ended_at": END - timedelta(hours=2)}
    Stage.objects.filter(request=running, position=0).update(jobs=2)
    ran(alps, running, "generation", record(1, **times), failed(2, **times))
    first = ends(running)[0]
    assert (first.at, first.basis) == (None, "1 job failed and is not retried")


def test_before_a_request_runs_its_stages_have_no_ends_beside_the_stored_forecast(alps, running):
    half_done(alps, running)
    assert {end.basis for end in shown(running)} == {"not computed yet"}
    for state, label in (("queued", "queued"), ("testing", "testing")):
        Request.objects.filter(pk=running.pk).update(state=state)
        assert {(end.at, end.basis) for end in (*shown(running), *ends(running))} == {
            (None, f"the request is “{label}”")
        }


def test_stored_forecast_is_shown_until_it_is_computed_again(
    alps, running, approver, liaison, browse
):
    half_done(alps, running)
    keep_forecasts(at=END)
    seen = shown(running)
    ran(
        alps,
        running,
        "generation",
        *(record(n, submitted_at=SENT, ended_at=END) for n in range(50, 60)),
    )
    assert shown(running) == seen
    api = browse(liaison).get(f"/api/v1/progress/{running.key}/").json()
    assert datetime.fromisoformat(api["stages"][2]["expected_late"]) == seen[2].late
    assert api["expected_late"] == str(timezone.localdate(seen[2].late))
    place_hold(
        by=approver, at=END, reason="Wait.", stage=Stage.objects.get(request=running, position=1)
    )
    deliver_waiting()
    assert shown(running)[1].basis == f"stage simulation of {running.key} is on hold"
    ran(
        alps,
        running,
        "generation",
        *(record(n, submitted_at=SENT, ended_at=END) for n in range(60, 100)),
    )
    assert shown(running)[0].basis == "all its jobs are done"


def accounting_read_until(cluster, until):
    Collection.objects.update_or_create(
        cluster=cluster, defaults={"collected_until": until, "last_run_at": END}
    )


def test_pace_is_measured_up_to_the_last_job_that_accounting_has_read(alps, running):
    half_done(alps, running)
    now = END + timedelta(days=2)
    beat_heart(name=TOTALS_HEART, at=now)

    accounting_read_until(alps, END)
    behind = progress_now(fresh(running), at=now, computed=True)
    assert behind.as_of == END
    assert (behind.stages[0].expected.at, behind.stages[0].expected.basis) == (
        now,  # five hours after END is over
        "50 jobs in 5 h, 50 to go",
    )

    accounting_read_until(alps, now)
    read = progress_now(fresh(running), at=now, computed=True)
    assert read.as_of == now
    assert read.stages[0].expected.basis == "no job completed in the last 24 hours"


def test_request_is_known_as_far_as_the_accounting_of_its_own_clusters(alps, running):
    beat_heart(name=TOTALS_HEART, at=END)
    long_ago = END - timedelta(days=3)
    accounting_read_until(clusters.cluster("jura"), long_ago)
    assert progress_now(running, at=END).as_of == long_ago  # its jobs may be there
    half_done(alps, running)
    assert progress_now(running, at=END).as_of == END


def test_page_and_api_show_the_end_of_the_chain(alps, running, liaison, browse):
    half_done(alps, running)
    keep_forecasts(at=END)
    whole = progress_now(fresh(running), at=END, computed=True).expected
    page = browse(liaison).get(f"/jobs/progress/{running.key}/").content.decode()
    early, likely, late = (
        timezone.localdate(moment) for moment in (whole.early, whole.at, whole.late)
    )
    assert f"Expected end: <b>{likely:%-d %b %Y}</b>" in page
    assert f"to {late:%-d %b %Y})" in page
    api = browse(liaison).get(f"/api/v1/progress/{running.key}/").json()
    written = [str(day) for day in (early, likely, late)]
    assert [api["expected_early"], api["expected_end"], api["expected_late"]] == written
    assert datetime.fromisoformat(api["stages"][2]["expected_late"]) == whole.late
    Stage.objects.filter(request=running, position=2).update(name="skim", wall_seconds=None)
    keep_forecasts(at=END)
    page = browse(liaison).get(f"/jobs/progress/{running.key}/").content.decode()
    assert "Expected end <b>unknown</b>: skim: no past jobs of this stage." in page
    assert (
        browse(liaison)
        .get(f"/api/v1/progress/{running.key}/")
        .json()["expected_basis"]
        .startswith("skim: no past")
    )


def test_the_first_stage_counts_from_the_start_until_it_has_a_pace(running):
    history(Request.objects.earliest("pk"), name="generation", per_day=PACE)
    began = SENT - timedelta(hours=1)  # when request_in makes its moves
    first = ends(running)[0]
    assert (first.at, first.late) == (began + DAY, began + 2 * DAY)
    assert first.basis.startswith("from the start, by 100 past jobs")
    # What should have ended is not repeated as if it were still to come.
    later = ends(running, at=began + 3 * DAY / 2)[0]
    assert (later.early, later.at, later.late) == (began + 3 * DAY / 2,) * 2 + (began + 2 * DAY,)
    gone = ends(running, at=began + 3 * DAY)[0]
    assert (gone.at, gone.basis) == (
        None,
        "no job completed yet; 100 past jobs would all have completed by now",
    )


def test_a_stage_counts_from_when_the_one_before_ended_or_was_taken_as_it_is(
    alps, running, approver
):
    ran(
        alps,
        running,
        "generation",
        *(record(n, submitted_at=SENT, ended_at=END) for n in range(99)),
    )
    ran(alps, running, "generation", failed(99, submitted_at=SENT, ended_at=END))
    taken = Stage.objects.select_related("request__experiment").get(request=running, position=0)
    later = END + timedelta(hours=2)
    record_acceptance(
        stage=taken, requested=100, completed=99, by=approver, at=later, reason="One is lost."
    )
    assert ends(running)[1].at == later + DAY
    taken.acceptance.delete()
    ran(alps, running, "generation", record(100, submitted_at=SENT, ended_at=END))
    assert ends(running)[1].at == END + DAY


def test_what_is_held_has_no_end(alps, running, approver):
    half_done(alps, running)
    place_hold(
        by=approver, at=END, reason="Wait.", stage=Stage.objects.get(request=running, position=1)
    )
    first, second, third = ends(running)
    assert first.at is not None
    assert second.basis == f"stage simulation of {running.key} is on hold"
    assert third.basis == "waits for simulation, whose end is unknown"
    held = fresh(running)
    MOVE_FUNCTIONS[Verb.HOLD](request=held, by=approver, at=END, reason="Wait.")
    assert {end.basis for end in ends(running)} == {"the request is “on hold”"}


def test_stage_on_hold_has_no_end_whatever_its_pace_was(alps, running, liaison, approver, browse):
    half_done(alps, running)
    keep_forecasts(at=END)
    assert ends(running)[0].at is not None
    [generation] = running.stages.filter(name="generation")
    place_hold(by=approver, at=END, reason="Wrong output.", stage=generation)
    deliver_waiting()
    first, second, third = shown(running)
    assert (first.at, second.at, third.at) == (None, None, None)
    assert first.is_held
    assert fresh(running).expected_end is None
    page = text_of(browse(liaison).get(f"/requests/{running.key}/"))
    assert f"Expected end unknown: generation: stage generation of {running.key} is on hold" in page
    progress = browse(liaison).get(f"/jobs/progress/{running.key}/").content.decode()
    assert progress.count("no end while on hold") == 1


def test_forty_stages_take_as_many_queries_as_three(
    nova, liaison, approver, running, django_assert_num_queries
):
    with CaptureQueriesContext(connection) as few:
        progress_now(fresh(running), at=END, computed=True)
    many = request_in(
        "running",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=tuple(stage(f"s{n}") for n in range(40)),
    )
    Stage.objects.filter(request=many).update(arguments={MUST_BE_LOCATED: True})
    with django_assert_num_queries(len(few)):
        progress_now(fresh(many), at=END, computed=True)
