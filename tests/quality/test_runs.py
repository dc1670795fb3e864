"""From data quality to the end: by checks that pass, by waivers, and not otherwise."""

import pytest
from django.db import transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.core import tasks as core_tasks
from apps.core.domain.events import events_of
from apps.core.errors import DomainError, InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.enums import PORTAL, Verb
from apps.quality.domain import runs
from apps.quality.models import QualityRun, Waiver
from apps.quality.tasks import check_all
from tests.factories.people import person
from tests.factories.quality import LATER


def test_request_whose_checks_pass_is_done_by_the_portal(produced):
    produced.all_good()
    assert produced.settle() == "done"
    event = events_of(produced.request).last()
    assert (event.kind, event.actor, event.reason) == (
        "request.done", PORTAL, "All data quality checks passed.",
    )  # fmt: skip
    assert set(produced.said().values()) <= {"passed", "unknown"}


def test_checks_run_when_the_request_comes_to_data_quality(make):
    produced = make("completing")
    MOVE_FUNCTIONS[Verb.REVIEW](
        request=produced.fresh(), by=person("ops", ("shifter", None)), at=LATER
    )
    assert not QualityRun.objects.exists()
    core_tasks.deliver_waiting()
    assert QualityRun.objects.get().state == "waiting"
    check_all()
    assert QualityRun.objects.get().state == "evaluated"


@pytest.mark.django_db(transaction=True)
def test_what_a_killed_worker_left_is_taken_up(produced, monkeypatch):
    """Killed before it began, in the middle of judging, and before the request was closed."""
    produced.all_good()
    runs.ask_for_run(request=produced.fresh(), by=PORTAL, at=LATER)
    with monkeypatch.context() as patch:
        patch.setattr(runs.QualityResult.objects, "bulk_create", _killed)
        with pytest.raises(KeyboardInterrupt):
            runs.run_checks(request=produced.fresh(), at=LATER)
    assert QualityRun.objects.get().state == "waiting"
    runs.run_checks(request=produced.fresh(), at=LATER)
    assert (produced.fresh().state, QualityRun.objects.get().state) == ("data_quality", "evaluated")
    check_all()
    assert (produced.fresh().state, QualityRun.objects.count()) == ("done", 1)


def _killed(*args, **kwargs):
    raise KeyboardInterrupt


def test_nothing_reported_is_not_known_and_blocks(produced, approver):
    assert produced.settle() == "data_quality"
    said = produced.said()
    assert (
        said[0, "events_delivered", ""]
        == said[0, "missing_jobs", ""]
        == said[1, "files_written", ""]
        == "unknown"
    )
    assert "request.quality_failed" in produced.kinds()
    with pytest.raises(InvalidTransition, match="An approver can waive each result with a reason"):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER)
    with pytest.raises(InvalidTransition, match="did not pass"):
        MOVE_FUNCTIONS[Verb.DONE_PARTIAL](
            request=produced.fresh(), by=approver, at=LATER, reason="enough"
        )


def test_nobody_closes_what_is_not_judged(produced, approver):
    with pytest.raises(InvalidTransition, match="not evaluated yet"):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER)


def test_every_failed_check_needs_its_waiver(produced, approver):
    produced.run_jobs(missing=1)
    produced.report(0, files_in=None, events_in=None)
    produced.report(1, files_out=1, events_out=5)
    opened = produced.judge().open
    assert {one.check_name for one in opened} == {"missing_jobs", "events_delivered", "events_kept"}
    for one in opened:
        assert produced.settle() == "data_quality"
        waive(produced, one, approver, "Half is enough for the study.")
    assert produced.settle() == "done_partial"
    assert "waived by opg-one" in events_of(produced.request).last().reason
    assert produced.kinds().count("request.waive") == 3


def waive(produced, one, by, reason="because", **more):
    return runs.waive_result(
        request=produced.fresh(), result=one.pk, by=by, at=LATER, reason=reason, **more
    )


def test_waiver_in_part_ends_it_as_done_in_part(produced, approver):
    produced.run_jobs(missing=1)
    produced.report(0, files_in=None, events_in=None)
    produced.report(1)
    (one,) = produced.judge().open
    waive(produced, one, approver, "The disk is full.", in_part=True)
    with pytest.raises(InvalidTransition, match="partially done"):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER)
    assert produced.settle() == "done_partial"
    event = events_of(produced.request).last()
    assert (event.actor, event.reason) == (
        PORTAL,
        "simulation: All jobs completed waived by opg-one.",
    )


def test_only_an_approver_who_is_not_the_requester_waives(produced, liaison, shifter, nova):
    (one, *_) = produced.judge().open
    liaison_too = person("two", ("liaison", nova), ("shifter", None))
    for by in (liaison, shifter, liaison_too):
        with pytest.raises(NotAllowed):
            waive(produced, one, by)
    assert not Waiver.objects.exists()


def test_requester_who_became_approver_waives_nothing(produced, liaison):
    from apps.accounts.domain.roles import grant_role
    from apps.accounts.enums import Role

    grant_role(user=liaison, role=Role.APPROVER, experiment=None, by="test", at=LATER)
    (one, *_) = produced.judge().open
    with pytest.raises(NotAllowed, match="You created, edited or submitted"):
        waive(produced, one, type(liaison).objects.get(pk=liaison.pk))


@pytest.mark.parametrize("reason", ["", "  ", "x" * 2001, "a\0b"])
def test_waiver_needs_a_reason(reason, produced, approver):
    (one, *_) = produced.judge().open
    with pytest.raises(InvalidFields):
        waive(produced, one, approver, reason)


def test_waiver_holds_for_just_what_was_said(produced, approver):
    produced.run_jobs(missing=1)
    produced.report(0, files_in=None, events_in=None)
    produced.report(1, events_out=9, files_out=1)
    for one in produced.judge().open:
        waive(produced, one, approver)
    produced.report(1, events_out=8, files_out=1)
    assert produced.quality().is_stale
    with pytest.raises(InvalidTransition, match="reports or thresholds have changed"):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER)
    assert produced.settle() == "data_quality"
    assert {result.check_name for result in produced.quality().open} == {
        "events_delivered",
        "events_kept",
    }


def test_withdrawn_waiver_holds_no_more(produced, approver, shifter):
    opened = produced.judge().open
    signed = [waive(produced, one, approver) for one in opened]
    with pytest.raises(NotAllowed):
        runs.withdraw_waiver(
            request=produced.fresh(), waiver=signed[0].pk, by=shifter, at=LATER, reason="no"
        )
    runs.withdraw_waiver(
        request=produced.fresh(), waiver=signed[0].pk, by=approver, at=LATER, reason="no"
    )
    assert produced.settle() == "data_quality"
    assert [result.digest for result in produced.quality().open] == [signed[0].digest]
    with pytest.raises(InvalidTransition, match="waiver not found"):
        runs.withdraw_waiver(
            request=produced.fresh(), waiver=signed[0].pk, by=approver, at=LATER, reason="no"
        )
    waive(produced, opened[0], approver)
    assert produced.settle() == "done"


def test_new_counts_are_judged_by_themselves_and_old_runs_kept(produced):
    assert produced.settle() == "data_quality"
    produced.all_good()
    check_all()
    assert produced.fresh().state == "done"
    assert [run.number for run in QualityRun.objects.order_by("number")] == [1, 2]
    assert QualityRun.objects.get(number=1).results.filter(blocks=True).exists()


def test_nothing_new_means_no_new_run(produced):
    for _ in range(3):
        produced.settle()
    assert QualityRun.objects.count() == 1
    assert produced.kinds().count("request.quality_failed") == 1


def test_results_of_before_do_not_close_a_request_that_was_resumed(produced, approver):
    produced.all_good()
    assert produced.judge().passes
    for verb in (Verb.RESUME, Verb.COMPLETE, Verb.REVIEW):
        MOVE_FUNCTIONS[verb](request=produced.fresh(), by=approver, at=LATER, reason="more")
    assert not produced.quality().passes
    with pytest.raises(InvalidTransition, match="not evaluated yet"):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER)
    assert produced.settle() == "done"


def test_run_on_demand_keeps_the_request_open_until_it_is_judged(
    produced, approver, liaison, other_liaison
):
    produced.all_good()
    produced.judge()
    runs.ask_for_run(request=produced.fresh(), by=liaison, at=LATER, reason="new constants")
    with pytest.raises(InvalidTransition, match="not evaluated yet"):
        MOVE_FUNCTIONS[Verb.DONE](request=produced.fresh(), by=approver, at=LATER)
    with pytest.raises(NotAllowed):
        runs.ask_for_run(request=produced.fresh(), by=other_liaison, at=LATER)
    assert runs.ask_for_run(request=produced.fresh(), by=approver, at=LATER).number == 2


@pytest.mark.parametrize("state", ["running", "completing", "cancelled"])
def test_nothing_is_judged_elsewhere(state, make, approver):
    produced = make(state)
    with pytest.raises(InvalidTransition, match="not in data quality"):
        runs.ask_for_run(request=produced.fresh(), by=approver, at=LATER)
    produced.settle()
    assert not QualityRun.objects.exists()


ACTIONS = st.lists(
    st.sampled_from(
        [
            "good",
            "few",
            "more",
            "judge",
            "waive",
            "waive_part",
            "withdraw",
            "done",
            "part",
            "settle",
            "resume",
            "again",
        ]
    ),
    max_size=14,
)


@pytest.fixture
def ran(produced):
    """A request of which one report is missing: without it, few sequences close anything."""
    produced.run_jobs()
    produced.report(0, files_in=None, events_in=None)
    return produced


@settings(
    max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(actions=["few", "judge", *["waive"] * 4, "withdraw", "settle", "done", "part"])
@given(actions=ACTIONS)
def test_no_sequence_closes_a_request_with_a_failed_check_that_nobody_waived(
    ran, approver, actions
):
    with transaction.atomic():
        before = ran.fresh().state
        for action in actions:
            try:
                with transaction.atomic():
                    act(ran, action, approver)
            except DomainError:
                pass
            after = ran.fresh().state
            if before == "data_quality" and after in {"done", "done_partial"}:
                closed_rightly(ran)
            before = after
        transaction.set_rollback(True)


def act(produced, action, approver) -> None:
    if action in {"good", "few", "more"}:
        produced.report(1, events_out={"good": 10, "few": 4, "more": 12}[action], key=action)
    elif action == "judge":
        produced.judge()
    elif action in {"waive", "waive_part"}:
        for result in produced.quality().open[:1]:
            waive(produced, result, approver, in_part=action == "waive_part")
    elif action == "withdraw":
        withdraw(produced, approver)
    elif action == "settle":
        produced.settle()
    elif action == "again":
        for verb in (Verb.COMPLETE, Verb.REVIEW):
            MOVE_FUNCTIONS[verb](request=produced.fresh(), by=approver, at=LATER)
    elif action in {"done", "part", "resume"}:
        verb = {"done": Verb.DONE, "part": Verb.DONE_PARTIAL, "resume": Verb.RESUME}[action]
        MOVE_FUNCTIONS[verb](request=produced.fresh(), by=approver, at=LATER, reason="because")


def withdraw(produced, approver) -> None:
    """Withdraw the first waiver, if there is one."""
    for result in produced.quality().waived[:1]:
        runs.withdraw_waiver(
            request=produced.fresh(),
            waiver=result.waiver.pk,
            by=approver,
            at=LATER,
            reason="no",
        )


def closed_rightly(produced) -> None:
    """The newest run is of this stay, has seen all reports,
    and each result that blocks has its waiver.
    """
    newest = QualityRun.objects.filter(request=produced.request).latest("number")
    arrived = events_of(produced.request).filter(new="data_quality").last()
    assert (newest.state, newest.arrival) == ("evaluated", arrived.pk)
    assert newest.inputs == runs.inputs_of(produced.fresh())
    held = set(
        Waiver.objects.filter(request=produced.request, withdrawn_at=None).values_list(
            "digest", flat=True
        )
    )
    assert set(newest.results.filter(blocks=True).values_list("digest", flat=True)) <= held
    assert not set(newest.results.filter(outcome="failed").values_list("digest", flat=True)) - held
