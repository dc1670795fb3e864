"""The page of a job."""

from apps.archive.models import Blob
from apps.jobs.models import Job
from tests.factories.jobs import failed, record, store
from tests.pages import count_queries, page_of
from tests.portal.shared_world import approver, dune, liaison, nova, shared_world, shifter, world

__all__ = ["approver", "dune", "liaison", "nova", "shared_world", "shifter", "world"]


def test_job_page_says_the_verdict_before_the_evidence(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    places = [
        page.index(text)
        for text in ("Service problem: retry", "HTTP error: 503", "#SBATCH", "OPSPORTAL_REQUEST")
    ]
    assert places == sorted(places)
    assert "failed · exit 65" in page


def test_job_page_escapes_everything_a_job_can_say(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    for text in ('<script>alert("log")', "<script>alert(1)", "<b>reco", "<img src=x>"):
        assert text not in page
    assert "&lt;img src=x&gt;" in page


def test_job_page_without_script_log_or_verdict(world, client, shifter):
    (job,) = store(world.job.cluster, record(99, started_at=None, ended_at=world.job.ended_at))
    page = page_of(client, shifter, f"/jobs/{job.pk}/")
    assert "Not captured" in page
    assert "The job never started." in page


def test_job_page_with_damaged_contents(world, client, shifter):
    Blob.objects.update(data=b"x")
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    assert page.count("<b>Content damaged</b>") == 2
    assert "Service problem: retry" in page


def test_job_page_tells_whether_its_services_were_out(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    outages = page[page.index('id="outages"') : page.index('id="timeline"')]
    assert '<span class="state down">yes</span>' in outages
    assert f"/services/incidents/{world.incident.pk}/" in outages


def test_job_page_hides_a_request_of_another_experiment(world, client, other_liaison, dune):
    Job.objects.filter(pk=world.job.pk).update(experiment=dune)
    page = page_of(client, other_liaison, f"/jobs/{world.job.pk}/")
    assert f'href="/requests/{world.request.key}/"' not in page


def test_job_page_asks_no_more_for_more_tasks(world, client, shifter):
    client.force_login(shifter)
    times = {
        "submitted_at": world.job.submitted_at,
        "ended_at": world.job.ended_at,
        "spool_id": world.job.spool_id,
    }
    store(world.job.cluster, failed(1, **times))
    path = f"/jobs/{world.job.pk}/"
    count_queries(client, path)
    before = count_queries(client, path)
    store(world.job.cluster, *[failed(number, **times) for number in range(2, 8)])
    assert count_queries(client, path) == before
