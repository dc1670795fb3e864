"""A job counts for a request only if that is proven: any user can set `OPSPORTAL_REQUEST`."""

from datetime import timedelta

import pytest
from django.urls import reverse

from apps.clusters.schedulers.base import CurrentJobs, CurrentState
from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition, NotAllowed
from apps.jobs.domain.collection.claims import accept_claims, claims_of, withdraw_claims
from apps.jobs.domain.collection.origin import attach_origin, claim_jobs, map_account, record_array
from apps.jobs.domain.live.queue import Origin, store_queue
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.domain.totals.totals import stage_sums
from apps.jobs.enums import MappedName, Proof
from apps.jobs.models import Job, QueueCount
from apps.production.models import Request, StageHistory
from apps.progress.domain.progress import progress_now
from apps.progress.domain.stage_history import count_changed
from apps.progress.domain.transitions import follow_requests
from tests.factories import clusters, jobs
from tests.factories.jobs import record
from tests.factories.requests import request_in, stage
from tests.progress.test_transitions import END, SENT

STRANGER = {
    "account": "guest",
    "user": "mallory",
    "submitted_at": SENT,
    "started_at": SENT,
    "ended_at": END,
}


@pytest.fixture
def queued(nova, liaison, approver):
    return request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("generation", jobs=2),),
    )


def ran(cluster, request, *records):
    return [
        Job.objects.get(pk=job.pk)
        for job in jobs.ran(cluster, request.key, "generation", *records, at=END)
    ]


def proof(job):
    return Job.objects.get(pk=job.pk).proof


def counted(request):
    """What the portal counts for a request: jobs by totals, by progress, by history,
    and its state.
    """
    recompute_dirty_hours(at=END)
    follow_requests(at=END)
    count_changed(at=END)
    fresh = Request.objects.get(pk=request.pk)
    row = progress_now(fresh, at=END).stages[0].progress
    sums = stage_sums([fresh])[fresh.pk].get("generation")
    attempts = sum(StageHistory.objects.filter(request=fresh).values_list("attempts", flat=True))
    assert (
        (sums.jobs if sums else 0)
        == row.ended
        == attempts
        == Job.objects.filter(request=request).count()
    )
    return row.completed, fresh.state


def test_jobs_of_a_stranger_move_nothing_and_count_nothing(alps, queued):
    forged = ran(alps, queued, record(1, **STRANGER), record(2, **STRANGER))
    assert counted(queued) == (0, "queued")
    assert {(job.proof, job.claimed_key, job.request_key, job.experiment) for job in forged} == {
        (Proof.CLAIMED, queued.key, "", None)
    }


def test_account_of_the_experiment_proves_it(alps, queued):
    (job,) = ran(alps, queued, record(1, **{**STRANGER, "account": "nova"}))
    assert job.proof == Proof.ACCOUNT
    assert counted(queued) == (1, "running")


def test_account_that_htcondor_lets_users_choose_proves_nothing_but_a_mapped_user_does(
    db, queued, nova, admin
):
    condor = clusters.cluster("pool", "htcondor", options={})
    (job,) = ran(condor, queued, record(1, **{**STRANGER, "account": "nova"}))
    assert (job.proof, counted(queued)) == (Proof.CLAIMED, (0, "queued"))
    map_account(
        account="mallory", kind=MappedName.USER, experiment=nova, cluster=condor, by=admin, at=END
    )
    claim_jobs(experiment=nova, at=END)
    assert (proof(job), counted(queued)) == (Proof.ACCOUNT, (1, "running"))


@pytest.mark.parametrize("first", ["array", "job"])
def test_array_that_the_portal_submitted_proves_its_jobs_whichever_is_known_first(
    alps, queued, first
):
    sent = {
        "cluster": alps,
        "spool_id": "1",
        "request": queued,
        "sent_at": SENT - timedelta(seconds=5),
        "at": END,
    }
    if first == "array":
        record_array(**sent)
    (job,) = ran(alps, queued, record(1, **STRANGER))
    if first == "job":
        record_array(**sent)
    assert (proof(job), counted(queued)) == (Proof.SUBMITTED, (1, "running"))
    assert Job.objects.get().experiment == queued.experiment


def test_array_proves_no_other_request_and_no_job_with_a_recycled_id(
    alps, jura, queued, nova, liaison, approver
):
    other = request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("generation", jobs=2),),
    )
    record_array(cluster=alps, spool_id="1", request=other, sent_at=SENT, at=END)
    record_array(
        cluster=alps, spool_id="2", request=queued, sent_at=SENT - timedelta(days=400), at=END
    )
    record_array(cluster=jura, spool_id="3", request=queued, sent_at=SENT, at=END)
    found = ran(alps, queued, *(record(number, **STRANGER) for number in (1, 2, 3)))
    assert {job.proof for job in found} == {Proof.CLAIMED}


@pytest.mark.parametrize(
    ("scope", "name", "covered"), [("job", "86_1", 1), ("array", "86", 2), ("user", "mallory", 3)]
)
def test_operator_accepts_claims_and_withdraws_that_and_every_figure_follows(
    alps, queued, shifter, scope, name, covered
):
    array = [record(number, **STRANGER, spool_id="86", job_id=f"86_{number}") for number in (1, 2)]
    ran(alps, queued, *array, record(3, **STRANGER), record(4, **{**STRANGER, "user": "eve"}))
    decision = {"request": queued, "by": shifter, "at": END, "reason": "Agreed by mail."}
    row = accept_claims(cluster=alps, scope=scope, name=name, **decision)
    assert counted(queued) == (covered, "running" if covered < 2 else counted(queued)[1])
    assert Job.objects.filter(proof=Proof.ACCEPTED, experiment=queued.experiment).count() == covered
    assert sum(claim["jobs"] for claim in claims_of(queued)) == 4 - covered
    with pytest.raises(InvalidTransition):
        accept_claims(cluster=alps, scope=scope, name=name, **decision)
    withdraw_claims(acceptance=row.pk, **decision)
    assert counted(queued)[0] == 0
    assert set(Job.objects.values_list("proof", "experiment", "request_key")) == {
        (Proof.CLAIMED, None, "")
    }
    kinds = list(
        events_of(queued)
        .filter(kind__startswith="claims.")
        .values_list("kind", "actor", "data__jobs")
    )
    assert kinds == [
        ("claims.accepted", shifter.username, covered),
        ("claims.withdrawn", shifter.username, covered),
    ]
    with pytest.raises(InvalidTransition):
        withdraw_claims(acceptance=row.pk, **decision)


def test_acceptance_of_a_user_covers_later_jobs_but_no_other_request(
    alps, queued, nova, liaison, approver, shifter
):
    ran(alps, queued, record(1, **STRANGER))
    accept_claims(
        request=queued,
        cluster=alps,
        scope="user",
        name="mallory",
        by=shifter,
        at=END,
        reason="Agreed.",
    )
    (later,) = ran(alps, queued, record(2, **STRANGER))
    assert later.proof == Proof.ACCEPTED
    other = request_in(
        "queued",
        by=liaison,
        experiment=nova,
        approver=approver,
        stages=(stage("generation", jobs=2),),
    )
    (foreign,) = ran(alps, other, record(3, **STRANGER))
    assert foreign.proof == Proof.CLAIMED


def test_corrected_account_is_proven_again(alps, queued):
    (job,) = ran(alps, queued, record(1, **{**STRANGER, "account": "nova"}))
    jobs.store(alps, record(1, **STRANGER))
    assert (proof(job), counted(queued)[0]) == (Proof.CLAIMED, 0)


def test_waiting_jobs_count_only_with_proof(alps, queued, nova, shifter):
    def wait(account="guest", user="mallory"):
        found = [CurrentJobs("7", SENT, CurrentState.QUEUED, 5, account)]
        store_queue(
            cluster=alps,
            jobs=found,
            origins={"7": [Origin(SENT, queued.key, "generation", user)]},
            at=END,
        )
        return sum(QueueCount.objects.values_list("queued", flat=True))

    assert wait() == 0
    assert wait(account="nova") == 5
    ran(alps, queued, record(1, **STRANGER))
    accept_claims(
        request=queued,
        cluster=alps,
        scope="user",
        name="mallory",
        by=shifter,
        at=END,
        reason="Agreed.",
    )
    assert (wait(), wait(user="eve")) == (5, 0)
    record_array(cluster=alps, spool_id="7", request=queued, sent_at=SENT, at=END)
    assert wait(user="eve") == 5


def test_only_operators_accept_claims(alps, queued, liaison, other_liaison):
    ran(alps, queued, record(1, **STRANGER))
    for user in (liaison, other_liaison):
        with pytest.raises(NotAllowed):
            accept_claims(
                request=queued, cluster=alps, scope="job", name="1", by=user, at=END, reason="Mine."
            )


def test_page_and_api_list_claims_and_take_decisions(alps, queued, liaison, shifter, browse):
    ran(alps, queued, record(1, **STRANGER))
    address, api = reverse("jobs:claims", args=[queued.key]), f"/api/v1/claims/{queued.key}/"
    page = browse(liaison).get(address).content.decode()
    assert "mallory" in page
    assert "Accept claims" not in page
    assert (
        f"Other jobs claim to belong to {queued.key}"
        in browse(liaison).get(queued.get_absolute_url()).content.decode()
    )
    (claim,) = browse(liaison).get(api).json()["claims"]
    assert (claim["array"], claim["user"], claim["jobs"]) == ("1", "mallory", 1)
    given = {"cluster": "alps", "scope": "array", "name": "1", "reason": "Agreed."}
    assert browse(liaison).post(f"{address}accept/", given).status_code == 403
    client = browse(shifter)
    assert client.post(f"{address}accept/", {**given, "name": "9"}, follow=True).context["claims"]
    assert (
        "Claims accepted." in client.post(f"{address}accept/", given, follow=True).content.decode()
    )
    (accepted,) = client.get(api).json()["accepted"]
    assert (accepted["scope"], accepted["by"]) == ("array", shifter.username)
    answer = client.post(
        f"{api}withdraw/", {"acceptance": accepted["id"], "reason": "No."}, "application/json"
    ).json()
    assert (len(answer["claims"]), answer["accepted"][0]["withdrawn_by"]) == (1, shifter.username)
    listed = client.get("/api/v1/jobs/", {"claims": queued.key}).json()["results"]
    assert [(job["request"], job["claimed_request"], job["proof"]) for job in listed] == [
        ("", queued.key, "claimed")
    ]


def test_unknown_request_of_another_experiment_is_only_claimed(alps, nova, dune):
    (job,) = jobs.store(alps, record(1, account="dune"))
    attach_origin(origins={job.pk: ("NOVA-0999", "reco")}, at=END)
    assert proof(job) == Proof.CLAIMED
