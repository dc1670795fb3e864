"""Messages of the OPG to an experiment: to whom, about what, and where they are recorded."""

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, NotAllowed
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.models import Impact, ImpactGroup
from apps.notifications.domain.experiment_messages import notify_experiment
from apps.notifications.models import Notification
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.enums import State
from tests.factories import clusters, jobs, statusboard
from tests.factories.verdicts import verdict
from tests.notifications.test_failures import failed_group
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import deliver
from tests.pages import page_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(nova):
    made = jobs.row(clusters.cluster(), 7, at=AT, experiment=nova)
    verdict(made, at=AT)
    return made


def test_message_reaches_the_liaisons_of_the_experiment_alone(
    client, job, nova, liaison, other_liaison, shifter, approver
):
    notify_experiment(subject=job, experiment=nova, text="Your proxy expired.", by=shifter, at=AT)
    deliver()
    [row] = Notification.objects.all()
    assert row.user == liaison
    assert row.get_absolute_url() == f"/jobs/{job.pk}/"
    assert "Your proxy expired." in page_of(client, liaison, "/notifications/")
    page = page_of(client, liaison, f"/jobs/{job.pk}/")
    assert "notified NOvA: “Your proxy expired.”" in page


def test_message_about_a_group_or_an_incident_is_in_its_activity(nova, liaison, shifter):
    group = failed_group(nova)
    incident = open_incident(
        service=statusboard.service("samweb", AT), state=State.DOWN, title="503", by=shifter, at=AT
    )
    for subject in (group, incident):
        notify_experiment(subject=subject, experiment=nova, text="Look here.", by=shifter, at=AT)
        assert events_of(subject).last().reason == "Look here."
    deliver()
    addresses = {row.get_absolute_url() for row in Notification.objects.filter(user=liaison)}
    assert addresses >= {f"/failures/{group.pk}/", f"/services/incidents/{incident.pk}/"}


def test_only_the_opg_sends_and_only_to_someone(job, nova, dune, liaison, shifter):
    message = {"subject": job, "at": AT}
    with pytest.raises(NotAllowed):
        notify_experiment(experiment=nova, text="x", by=liaison, **message)
    with pytest.raises(InvalidFields):
        notify_experiment(experiment=nova, text=" ", by=shifter, **message)
    with pytest.raises(InvalidFields):
        notify_experiment(experiment=dune, text="x", by=shifter, **message)


def test_form_is_filled_with_the_facts(client, job, nova, liaison, shifter):
    address = f"/notify/job/{job.pk}/"
    page = page_of(client, shifter, address)
    assert f"Job {job.job_id}" in page
    assert liaison.username in page
    answer = client.post(address, {"experiments": [nova.pk], "text": "Please look."})
    assert answer.status_code == 302
    assert events_of(job).last().reason == "Please look."
    assert client.post(address, {"experiments": [nova.pk], "text": ""}).status_code == 400


def test_each_experiment_gets_its_own_figures(client, nova, dune, liaison, other_liaison, shifter):
    group = failed_group(nova, dune, dune)
    recount_dirty_hours()
    address = f"/notify/group/{group.pk}/"
    page = page_of(client, shifter, address)
    assert page.count("checked") == 2
    assert f"DUNE, 2 failed jobs ({other_liaison.username})" in page

    both = {"experiments": [nova.pk, dune.pk], "text": "Please look."}
    assert client.post(address, both).status_code == 302

    texts = [event.reason for event in events_of(group) if event.kind == "experiment.notified"]
    assert sorted(texts) == [
        "DUNE: 2 failed jobs.\nPlease look.",
        "NOVA: 1 failed job.\nPlease look.",
    ]
    assert client.post(address, {"experiments": [], "text": "x"}).status_code == 400


def test_experiment_without_a_liaison_cannot_be_chosen(client, nova, dune, other_liaison, shifter):
    group = failed_group(nova, dune, dune)
    recount_dirty_hours()
    address = f"/notify/group/{group.pk}/"
    assert "NOvA, 1 failed job (no liaison)" in page_of(client, shifter, address)
    answer = client.post(address, {"experiments": [nova.pk, dune.pk], "text": "x"})
    assert answer.status_code == 400


def test_all_experiments_with_failed_jobs_of_an_incident_are_offered(
    client, nova, dune, liaison, other_liaison, shifter
):
    incident = open_incident(
        service=statusboard.service("samweb", AT), state=State.DOWN, title="503", by=shifter, at=AT
    )
    impact = Impact.objects.create(incident=incident, counted_at=AT, bins_from=AT, bin_seconds=60)
    for experiment, stage, failed in ((nova, "reco", 3), (nova, "merge", 1), (dune, "reco", 2)):
        ImpactGroup.objects.create(impact=impact, experiment=experiment, stage=stage, failed=failed)
    page = page_of(client, shifter, f"/notify/incident/{incident.pk}/")
    assert f"NOvA, 4 failed jobs ({liaison.username})" in page
    assert f"DUNE, 2 failed jobs ({other_liaison.username})" in page
