"""What earlier cases came to: shown as a suggestion, proposed as a known error,
never overruling a fact.
"""

import pytest
from django.urls import reverse

from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.verdicts.experience import experience_of
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.engine.evidence.catalogue import regex_fault
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import FailureGroup, KnownErrorChange, LogHarvest, Verdict

LINE = "2026-11-20 11:59:0{0} flux capacitor {0} not aligned at /x/y{0}.root, cannot go on\n"


@pytest.fixture
def judged(make_job, at):
    """Return a function that makes a failed job with its verdict."""

    def make(number, log=LINE, **fields):
        job = make_job(number, log=log.format(number), **fields)
        queue_harvests(job_pks=[job.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
        return Verdict.objects.select_related("job").get(job=job)

    return make


def correct(verdict, by, at, kind=VerdictKind.SERVICE):
    return override_verdict(
        job=verdict.job, verdict=kind, by=by, at=at, reason="the aligner was down"
    )


def test_earlier_cases_are_counted_whatever_their_verdict(
    judged, shifter, approver, at, django_assert_num_queries
):
    first, second, third, new = (judged(number) for number in (1, 2, 3, 4))
    assert experience_of(new, user=shifter, at=at) is None
    correct(first, shifter, at)
    correct(second, approver, at)
    Verdict.objects.filter(pk=third.pk).update(later_state="completed", later_attempt=2)
    FailureGroup.objects.filter(verdicts=third).update(status="known", owner="maria")
    with django_assert_num_queries(2):
        experience = experience_of(new, user=shifter, at=at)
    assert (experience.cases, experience.retried, experience.succeeded) == (3, 1, 1)
    assert experience.corrected == ((VerdictKind.SERVICE, 2),)
    assert [group.owner for group in experience.groups] == ["maria"]
    assert experience.suggestion == "Users judged it as: service problem."
    correct(third, shifter, at, VerdictKind.CODE)
    assert experience_of(new, user=shifter, at=at).suggestion == ""
    assert Verdict.objects.get(pk=new.pk).verdict == "unknown"


def test_retries_are_worth_a_suggestion_from_five_on(judged, shifter, at):
    *old, new = (judged(number) for number in range(1, 8))
    Verdict.objects.filter(pk__in=[row.pk for row in old[:4]]).update(
        later_state="completed", later_attempt=2
    )
    assert experience_of(new, user=shifter, at=at).suggestion == ""
    Verdict.objects.filter(pk__in=[row.pk for row in old]).update(
        later_state="completed", later_attempt=2
    )
    assert experience_of(new, user=shifter, at=at).suggestion == "A retry usually succeeds."
    Verdict.objects.filter(pk__in=[row.pk for row in old]).update(later_state="failed")
    assert experience_of(new, user=shifter, at=at).suggestion == "A retry rarely helps."


def test_a_fact_decides_whatever_the_cases_say(judged, shifter, approver, at):
    for number in (1, 2):
        correct(judged(number, state="out_of_memory"), shifter, at)
    new = judged(3, state="out_of_memory")
    assert (new.verdict, experience_of(new, user=shifter, at=at).corrected) == (
        "resource",
        ((VerdictKind.SERVICE, 2),),
    )


def test_repeated_agreement_proposes_a_known_error_once(judged, shifter, approver, at):
    first, second, third, fourth, fifth = (judged(number) for number in (1, 2, 3, 4, 5))
    for verdict in (first, second):
        correct(verdict, shifter, at)
    correct(third, shifter, at)
    assert not KnownErrorChange.objects.filter(state="proposed").exists()  # one user alone
    correct(fourth, approver, at)
    change = KnownErrorChange.objects.get(state="proposed")
    assert (change.by, change.values["category"], change.values["advice"]) == (
        "opsportal",
        "service",
        "retry",
    )
    assert change.values["example"].endswith(
        "flux capacitor 1 not aligned at /path/to/file, cannot go on"
    )
    assert change.values["experiment"] == "NOVA"
    assert regex_fault(change.values["regex"], LINE.format(8)) == ""
    assert "4 verdicts" in change.reason
    change.state = "rejected"
    change.save()
    correct(fifth, approver, at)
    assert not KnownErrorChange.objects.filter(state="proposed").exists()


def test_disagreement_and_known_errors_propose_nothing(judged, shifter, approver, at):
    for number, kind in ((1, "service"), (2, "code"), (3, "service"), (4, "service")):
        correct(judged(number), approver if number % 2 else shifter, at, VerdictKind(kind))
    for number in (5, 6, 7):
        verdict = judged(number, log="HTTP error: 503 Service Unavailable: samweb.declareFile\n")
        correct(verdict, approver if number % 2 else shifter, at, VerdictKind.CODE)
    assert not KnownErrorChange.objects.filter(state="proposed").exists()


def test_pages_of_job_and_group_show_them(client, judged, shifter, approver, at, time_machine):
    time_machine.move_to(at)
    first, new = judged(1), judged(2)
    correct(first, shifter, at)
    recount_dirty_hours()
    client.force_login(shifter)
    for url in (
        reverse("portal:job", args=[new.job_id]),
        reverse("diagnosis:verdict", args=[new.job_id]),
        reverse("diagnosis:group", args=[new.group_id]),
    ):
        html = client.get(url).content.decode()
        assert "1 corrected to “Service problem”" in html, url
