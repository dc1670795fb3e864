"""The page of a job."""

import json
import re
from datetime import timedelta

from django.urls import reverse

from apps.archive.models import Blob
from apps.diagnosis.models import FailureGroup, LogHarvest, Verdict
from apps.diagnosis.wording import NOTHING_MATCHED
from apps.jobs.models import Job
from tests.factories.history import history
from tests.factories.jobs import failed, record, store
from tests.factories.verdicts import verdict
from tests.pages import count_queries, page_of, text_of
from tests.portal.shared_world import approver, dune, liaison, nova, shared_world, shifter, world

__all__ = ["approver", "dune", "liaison", "nova", "shared_world", "shifter", "world"]


def test_job_page_says_the_verdict_before_the_evidence(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    places = [
        page.index(text)
        for text in ("Service problem:", "HTTP error: 503", "#SBATCH", "OPSPORTAL_REQUEST")
    ]
    assert places == sorted(places)
    assert "failed · exit 65" in page


def test_job_page_escapes_everything_a_job_can_say(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    for text in ('<script>alert("log")', "<script>alert(1)", "<b>reco", "<img src=x>"):
        assert text not in page
    assert "&lt;img src=x&gt;" in page


def test_job_page_quotes_the_line_that_decides_and_counts_the_same_failure(world, client, shifter):
    page = text_of(client_page(client, shifter, world.job))
    verdict = page[page.index('id="verdict"') : page.index('class="act"')]
    deciding = verdict[verdict.index("Decides") : verdict.index("</li>")]
    assert "HTTP error: 503 Service Unavailable: samweb.declareFile" in deciding
    assert 'href="/failures/known-errors/SAMWEB-5XX/"' in deciding
    assert "samweb had an outage while the job ran" in deciding
    assert "1 job with the same failure" in verdict
    assert f"1 in stage {world.job.stage}" in verdict


def test_numbers_of_the_same_failure_equal_the_lists_behind_them(world, client, shifter):
    page = client_page(client, shifter, world.job).content.decode()
    stage = re.search(r'href="(/failures/jobs/\?group=[^"]+)"', page)[1].replace("&amp;", "&")
    listed = page_of(client, shifter, stage)
    assert listed.count(f'href="/jobs/{world.job.pk}/"') == 1
    assert "No matching jobs" in page_of(client, shifter, f"{stage}x")


def test_job_page_leads_to_the_next_jobs_with_the_same_failure(world, client, shifter):
    earlier, later = store(
        world.job.cluster,
        failed(801, ended_at=world.job.ended_at - timedelta(minutes=2)),
        failed(802, ended_at=world.job.ended_at + timedelta(minutes=2)),
    )
    group = FailureGroup.objects.get()
    for job in (earlier, later):
        verdict(job, at=job.ended_at, group=group)
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    assert f'href="/jobs/{later.pk}/" rel="prev"' in page
    assert f'href="/jobs/{earlier.pk}/" rel="next"' in page
    assert f'href="/jobs/{world.job.pk}/" rel="prev"' in page_of(
        client, shifter, f"/jobs/{earlier.pk}/"
    )


def test_first_action_is_what_the_verdict_advises(world, client, shifter):
    page = text_of(client_page(client, shifter, world.job))
    assert re.search(r'class="button main" href="[^"]+" >Retry once samweb is up…', page)
    Verdict.objects.update(verdict="code")
    page = text_of(client_page(client, shifter, world.job))
    assert re.search(r'class="button main" href="[^"]+">Debug re-run…', page)


def test_request_is_watched_from_the_job_page(world, client, shifter):
    assert "Watch request" in page_of(client, shifter, f"/jobs/{world.job.pk}/")
    client.post(reverse("notifications:request", args=[world.request.key]), {"level": "watching"})
    assert "Stop watching" in page_of(client, shifter, f"/jobs/{world.job.pk}/")


def client_page(client, user, job):
    client.force_login(user)
    return client.get(f"/jobs/{job.pk}/")


def test_activity_has_the_verdict_once(world, client, shifter):
    client.force_login(shifter)
    entries = client.get(world.job.get_absolute_url()).context["activity"]
    assert [entry.text for entry in entries if "verdict" in entry.text] == [
        "decided the verdict: service"
    ]


def test_job_page_without_script_log_or_verdict(world, client, shifter):
    (job,) = store(world.job.cluster, record(99, started_at=None, ended_at=world.job.ended_at))
    page = page_of(client, shifter, f"/jobs/{job.pk}/")
    assert "Not captured" in page
    assert "The job never started." in page


def test_job_page_without_log_offers_what_else_is_possible(world, client, shifter, liaison):
    (job,) = store(world.job.cluster, failed(99, ended_at=world.job.ended_at, user="alice"))
    Job.objects.filter(pk=job.pk).update(
        experiment=world.job.experiment, request_key=world.request.key, stage="reco"
    )
    verdict(job, "code", at=job.ended_at, summary=NOTHING_MATCHED)
    LogHarvest.objects.update_or_create(
        job=job, defaults={"state": "log_not_found", "due_at": job.ended_at}
    )
    for user, offer in ((shifter, "debug re-run</a>"), (liaison, "ask approvers and shifters</a>")):
        page = " ".join(page_of(client, user, f"/jobs/{job.pk}/").split())
        assert "Log not available" in page
        assert "Read the log" not in page
        assert "No log of the job could be read" in page
        assert "alice may still have a copy" in page
        assert offer in page
    Verdict.objects.filter(job=job).update(summary="Other.")
    assert "No log of the job" not in page_of(client, shifter, f"/jobs/{job.pk}/")


def test_job_page_with_damaged_contents(world, client, shifter):
    Blob.objects.update(data=b"x")
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    assert page.count("<b>Content damaged</b>") == 2
    assert "Service problem: retry" in page


def test_job_page_tells_whether_its_services_were_out(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    outages = page[page.index('id="outages"') : page.index('id="log"')]
    assert '<span class="state down">down</span>' in outages
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


def test_job_page_says_what_the_stage_used_and_would_need(world, client, shifter):
    Job.objects.filter(pk=world.job.pk).update(
        requested_memory_bytes=8 * 10**9, max_memory_bytes=10**9
    )
    assert "Could request" not in page_of(client, shifter, f"/jobs/{world.job.pk}/")
    history(
        world.request,
        name=world.job.stage.lower(),
        completed=12_340,
        memory_bytes_99=2.1e9,
        completed_cpu_seconds=40.0,
        completed_core_seconds=100.0,
    )
    page = text_of(client_page(client, shifter, world.job))
    assert "2.6 GB of memory instead of 8 GB" in page
    assert "99 % of 12,340 completed jobs used at most 2.1 GB" in page
    assert "40 % in its stage" in page


def test_job_page_shows_gpus_and_energy_only_where_they_are_known(world, client, shifter):
    page = page_of(client, shifter, f"/jobs/{world.job.pk}/")
    assert "GPUs" not in page
    assert "Energy" not in page
    Job.objects.filter(pk=world.job.pk).update(
        gpus=2, gpu_share=0.75, max_gpu_memory_bytes=3 * 10**9, energy_joules=9_000_000
    )
    page = text_of(client_page(client, shifter, world.job))
    for text in ("2, 75 % used", "3 GB of memory at most", "2.5 kWh", "measured by the scheduler"):
        assert text in page


def test_job_page_marks_energy_that_is_modelled(world, client, api, shifter, settings, tmp_path):
    settings.ENERGY_MODEL = tmp_path / "energy.json"
    sites = {"*": {"pue": 1.5, "grams_per_kwh": 400}}
    settings.ENERGY_MODEL.write_text(json.dumps({"default_watts_per_core": 10, "sites": sites}))
    Job.objects.filter(pk=world.job.pk).update(
        cpus=10, wall_seconds=36_000, cpu_seconds=360_000, requested_memory_bytes=None
    )
    page = text_of(client_page(client, shifter, world.job))
    assert "1 kWh <small>modelled, not measured</small>" in page
    assert "1.5 kWh with the site’s PUE of 1.5" in page
    assert "600 g of CO₂ equivalent" in page
    answer = api(shifter).get(f"/api/v1/jobs/{world.job.pk}/").json()
    assert answer["energy"] == {
        "joules": 3_600_000,
        "is_modelled": True,
        "pue": 1.5,
        "site_joules": 5_400_000,
        "carbon_grams": 600,
    }
