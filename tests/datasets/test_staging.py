"""Input datasets are brought to disk: stored by a page, sent and followed by workers."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition, NotAllowed
from apps.datasets import tasks
from apps.datasets.catalogues.base import Refused
from apps.datasets.domain import staging
from apps.datasets.domain.catalogue_queue import catalogues_to_ask_about
from apps.datasets.domain.look_ups import BackOfficeCatalogues
from apps.datasets.domain.staging import (
    DEADLINE,
    STAGINGS,
    ask_now,
    cancel_waiting,
    close_overdue,
    follow_stagings,
    request_staging,
)
from apps.datasets.domain.staging_options import staging_target
from apps.datasets.enums import StagingState
from apps.datasets.models import Catalogue, KnownDataset, StagingRequest
from tests.datasets.catalogues.server import Response, as_json, json_answer
from tests.datasets.catalogues.test_rucio import RULE_ID, RucioHarness, sample
from tests.factories.people import person
from tests.factories.requests import draft, request_in, stage

NAME = "exa-raw:run4711"
MINUTE = timedelta(minutes=1)
S = StagingState


@pytest.fixture
def rucio(tmp_path, db, settings):
    settings.DATASET_CATALOGUE = "portal"
    harness = RucioHarness(tmp_path)
    harness.row = Catalogue.objects.create(
        name="rucio",
        kind="rucio",
        base_url=harness.server.url,
        credential_file=str(tmp_path / "credential"),
        options={"account": "exaprod", "stage_to": "EXA_DISK", "stage_days": 14},
    )
    know(harness.row)
    yield harness
    harness.server.close()


def know(row, name=NAME):
    at = timezone.now()
    return KnownDataset.objects.create(
        catalogue=row,
        name=name,
        exists=True,
        is_waiting=False,
        answered_at=at,
        requested_at=at,
        due_at=at,
        files=12,
        files_located=12,
        files_on_disk=4,
        files_on_tape_only=8,
        files_without_location=0,
    )


@pytest.fixture
def reading(rucio, liaison, nova):
    """A draft that reads a dataset of Rucio."""
    return draft(liaison, nova, stages=(stage("reco", input_dataset=NAME),))


@pytest.fixture
def clock():
    class Clock:
        at = timezone.now()

        def __call__(self):
            return self.at

    return Clock()


@pytest.fixture
def staged(reading, liaison, clock):
    return request_staging(request=reading, dataset=NAME, by=liaison, at=clock.at)


def follow(rucio, clock):
    return follow_stagings(rucio.row, now=clock)


def fault(rucio, response):
    rucio.server.fault = lambda request: response if "rules" in request.segments else None


def progress(rucio, name):
    """Let the catalogue answer with a sample of a rule."""
    rule = json_answer(f"rucio/{name}.json") | {"id": RULE_ID}
    answer = as_json(rule)
    rucio.server.fault = lambda request: answer if RULE_ID in request.segments else None


def kinds(request):
    return [event.kind for event in events_of(request) if event.kind.startswith("staging")]


def test_dataset_is_requested_once_and_followed_until_it_is_on_disk(
    rucio, staged, reading, liaison, clock
):
    assert rucio.server.requests == []  # the page sends nothing
    again = request_staging(request=reading, dataset=NAME, by=liaison, at=clock.at)
    assert again.pk == staged.pk
    assert list(catalogues_to_ask_about(STAGINGS, clock.at)) == [rucio.row]

    assert follow(rucio, clock) == 1
    rule = rucio.server.rules[0]
    assert (rule["rse_expression"], rule["lifetime"]) == ("EXA_DISK", 14 * 86_400)
    assert reading.key in rule["comment"]
    staged.refresh_from_db()
    assert (staged.state, staged.external_id) == (S.STAGING, RULE_ID)
    assert follow(rucio, clock) == 0  # not due yet

    clock.at += 2 * MINUTE
    progress(rucio, "rule_replicating")
    assert follow(rucio, clock) == 1
    staged.refresh_from_db()
    assert (staged.files_on_disk, staged.files, staged.state) == (7, 12, S.STAGING)
    assert staged.progress_at == clock.at

    clock.at += 2 * MINUTE
    progress(rucio, "rule_ok")
    assert follow(rucio, clock) == 1
    staged.refresh_from_db()
    assert (staged.state, staged.files_on_disk) == (S.COMPLETE, 12)
    assert not STAGINGS.unfinished().exists()
    assert KnownDataset.objects.get().is_waiting  # where its files are is asked again
    assert kinds(reading) == ["staging.requested", "staging.complete"]


def test_pauses_grow_with_age_up_to_an_hour(rucio, staged, clock):
    follow(rucio, clock)
    progress(rucio, "rule_replicating")
    pauses = []
    start = clock.at
    for minutes in (2, 40, 24 * 60):
        clock.at = start + minutes * MINUTE
        follow(rucio, clock)
        staged.refresh_from_db()
        pauses.append(staged.due_at - clock.at)
    assert pauses == [MINUTE, 10 * MINUTE, 60 * MINUTE]


@pytest.mark.parametrize(
    "response", [Response(503, b"Overloaded"), sample("token_expired_401"), Response(200, b"<p>")]
)
def test_catalogue_that_does_not_answer_loses_nothing(rucio, staged, clock, response):
    fault(rucio, response)
    assert follow(rucio, clock) == 0
    staged.refresh_from_db()
    assert staged.state == S.QUEUED
    assert staged.last_error
    rucio.server.fault = lambda request: None
    clock.at += 11 * MINUTE
    assert follow(rucio, clock) == 1
    staged.refresh_from_db()
    assert (staged.state, staged.last_error) == (S.STAGING, "")


def test_worker_killed_after_sending_finds_the_request_that_exists(
    rucio, staged, clock, monkeypatch
):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_store", die)
        with pytest.raises(KeyboardInterrupt):
            follow(rucio, clock)
    assert len(rucio.server.rules) == 1
    assert follow(rucio, clock) == 0  # its claim lasts for minutes
    clock.at += 11 * MINUTE
    assert follow(rucio, clock) == 1
    staged.refresh_from_db()
    assert (staged.external_id, len(rucio.server.rules)) == (RULE_ID, 1)


def test_refusal_ends_it_with_the_reason_and_it_can_be_requested_again(
    rucio, staged, reading, liaison, clock
):
    fault(rucio, sample("rule_quota_409"))
    follow(rucio, clock)
    staged.refresh_from_db()
    assert staged.state == S.REFUSED
    assert "quota" in staged.last_error
    assert kinds(reading) == ["staging.requested", "staging.refused"]
    with pytest.raises(InvalidTransition):
        ask_now(staging=staged, by=liaison, at=clock.at)

    rucio.server.fault = lambda request: None
    request_staging(request=reading, dataset=NAME, by=liaison, at=clock.at)
    follow(rucio, clock)
    staged.refresh_from_db()
    assert (staged.state, staged.last_error) == (S.STAGING, "")


def test_stuck_rule_is_shown_and_given_up_at_the_deadline(rucio, staged, reading, clock):
    follow(rucio, clock)
    clock.at += 2 * MINUTE
    progress(rucio, "rule_stuck_no_sources")
    follow(rucio, clock)
    staged.refresh_from_db()
    assert (staged.files_stuck, staged.catalogue_state) == (1, "STUCK")
    assert staged.catalogue_error

    assert close_overdue(at=staged.finish_by - MINUTE) == 0
    assert close_overdue(at=staged.finish_by) == 1
    staged.refresh_from_db()
    assert staged.state == S.OVERDUE
    assert staged.finish_by - staged.requested_at == DEADLINE
    assert kinds(reading)[-1] == "staging.overdue"


def test_progress_that_comes_after_the_wait_was_cancelled_is_dropped(
    rucio, staged, liaison, clock, monkeypatch
):
    follow(rucio, clock)
    clock.at += 2 * MINUTE
    progress(rucio, "rule_ok")
    store = staging._store_progress

    def cancel_first(*args):
        cancel_waiting(staging=staged, by=liaison, at=clock.at)
        store(*args)

    monkeypatch.setattr(staging, "_store_progress", cancel_first)
    follow(rucio, clock)
    staged.refresh_from_db()
    assert (staged.state, staged.files_on_disk) == (S.CANCELLED, None)


def test_tasks_send_and_end(rucio, staged, monkeypatch):
    tasks.stage_in(catalogue_id=rucio.row.pk)
    staged.refresh_from_db()
    assert staged.state == S.STAGING
    StagingRequest.objects.update(finish_by=timezone.now())
    tasks.stage()
    staged.refresh_from_db()
    assert staged.state == S.OVERDUE
    tasks.stage_in(catalogue_id=0)


def test_dataset_that_is_no_input_or_not_in_a_catalogue_that_stages_is_not_staged(
    rucio, reading, liaison, clock
):
    know(rucio.row, "exa-raw:other")
    for dataset in ("exa-raw:other", "", "none"):
        with pytest.raises(InvalidTransition):
            request_staging(request=reading, dataset=dataset, by=liaison, at=clock.at)
    for changes in (
        {"options": {"account": "exaprod"}},
        {"options": {"stage_to": 5}},
        {"active": False, "options": {"stage_to": "EXA_DISK"}},
    ):
        Catalogue.objects.update(**changes)
        with pytest.raises(InvalidTransition):
            request_staging(request=reading, dataset=NAME, by=liaison, at=clock.at)


def test_dataset_that_another_experiment_writes_is_not_revealed(
    rucio, reading, liaison, dune, other_liaison, approver, browse, clock
):
    request_in(
        "queued",
        experiment=dune,
        by=other_liaison,
        approver=approver,
        stages=(stage("raw", output_dataset=NAME),),
    )
    with pytest.raises(InvalidTransition):
        request_staging(request=reading, dataset=NAME, by=liaison, at=clock.at)
    page = browse(liaison).get(reading.get_absolute_url()).content.decode()
    assert 'id="input-datasets"' not in page


@pytest.mark.parametrize(
    ("kind", "options", "fault"),
    [
        ("rucio", {"stage_to": ""}, "not a storage"),
        ("rucio", {"stage_days": 3}, "not a storage"),
        ("rucio", {"stage_to": "EXA_DISK", "stage_days": 0}, "number of days"),
        ("rucio", {"stage_to": "EXA_DISK", "stage_days": True}, "number of days"),
        ("sam", {"stage_to": "EXA_DISK"}, "cannot bring datasets to disk"),
        ("nothing", {"stage_to": "EXA_DISK"}, "nothing"),
    ],
)
def test_wrong_options_are_refused(kind, options, fault):
    with pytest.raises(Refused, match=fault):
        staging_target(Catalogue(kind=kind, options=options))


def test_lifetime_has_a_default():
    target = staging_target(Catalogue(kind="rucio", options={"stage_to": "EXA_DISK"}))
    assert (target.storage, target.lifetime.days) == ("EXA_DISK", 30)
    assert staging_target(Catalogue(kind="sam", options={})) is None


def test_check_offers_to_stage(rucio):
    assert BackOfficeCatalogues().find([NAME])[NAME].can_stage
    Catalogue.objects.update(options={})
    assert not BackOfficeCatalogues().find([NAME])[NAME].can_stage


class TestPages:
    def test_dataset_is_staged_from_the_page_without_asking_the_catalogue(
        self, rucio, reading, liaison, browse, clock
    ):
        client = browse(liaison)
        url = reverse("datasets:stage", args=[reading.key])
        page = client.get(reading.get_absolute_url()).content.decode()
        shown = " ".join(page.split())
        assert "4 on disk, 8 on tape only, 0 without location" in shown
        assert f"{url}?dataset=exa-raw%3Arun4711" in page
        assert "EXA_DISK" in client.get(url, {"dataset": NAME}).content.decode()
        assert not StagingRequest.objects.exists()
        page = client.post(url, {"dataset": NAME}, follow=True).content.decode()
        assert "Not sent yet" in page
        assert "Ask again" in page
        assert "Stage…" not in page
        assert rucio.server.requests == []

        row = StagingRequest.objects.get()
        StagingRequest.objects.update(
            state=S.STAGING,
            files_on_disk=3120,
            files_waiting=880,
            files_stuck=0,
            progress_at=timezone.now() - 5 * MINUTE,
            last_error="<b>away</b>",
            due_at=timezone.now() + 60 * MINUTE,
        )
        page = client.get(reading.get_absolute_url()).content.decode()
        assert "3,120 of 4,000 files on disk, asked" in page
        assert "&lt;b&gt;away&lt;/b&gt;" in page

        ask = reverse("datasets:stage-ask", args=[reading.key])
        assert client.get(ask).status_code == 303  # changes nothing
        client.post(ask, {"staging": row.pk})
        row.refresh_from_db()
        assert row.due_at <= timezone.now()
        client.post(reverse("datasets:stage-cancel", args=[reading.key]), {"staging": row.pk})
        row.refresh_from_db()
        assert row.state == S.CANCELLED
        assert rucio.server.requests == []
        page = client.get(reading.get_absolute_url()).content.decode()
        assert "Stage…" in page
        assert "stopped waiting for" in page

    def test_page_without_the_catalogues_of_the_back_office_shows_nothing(
        self, reading, liaison, browse, settings
    ):
        settings.DATASET_CATALOGUE = ""
        page = browse(liaison).get(reading.get_absolute_url()).content.decode()
        assert 'id="input-datasets"' not in page

    def test_only_liaisons_and_operators_stage(
        self, rucio, nova, liaison, other_liaison, approver, shifter, admin, browse
    ):
        submitted = request_in(
            "awaiting_approval",
            experiment=nova,
            by=liaison,
            approver=approver,
            stages=(stage("reco", input_dataset=NAME),),
        )
        url = reverse("datasets:stage", args=[submitted.key])
        stranger = person("stranger")
        statuses = {}
        for user in (liaison, approver, shifter, admin, other_liaison, stranger):
            StagingRequest.objects.all().delete()
            statuses[user.username] = browse(user).post(url, {"dataset": NAME}).status_code
            assert StagingRequest.objects.exists() is (statuses[user.username] == 302)
        assert list(statuses.values()) == [302, 302, 302, 403, 404, 404]

    def test_closed_request_is_not_staged(self, reading, liaison, clock, staged):
        reading.state = "cancelled"
        for act in (ask_now, cancel_waiting):
            staged.request.state = "cancelled"
            with pytest.raises(NotAllowed):
                act(staging=staged, by=liaison, at=clock.at)

    def test_staging_of_another_request_is_not_found(self, reading, staged, liaison, nova, browse):
        other = draft(liaison, nova)
        url = reverse("datasets:stage-cancel", args=[other.key])
        assert browse(liaison).post(url, {"staging": staged.pk}).status_code == 404

    def test_back_office_lists_it(self, staged, browse, admin):
        client = browse(admin)
        assert NAME in client.get("/admin/datasets/stagingrequest/").content.decode()
        assert client.get("/admin/datasets/stagingrequest/add/").status_code == 403


class TestApi:
    def test_dataset_is_staged_and_cancelled_without_asking_the_catalogue(
        self, rucio, reading, liaison, api
    ):
        client = api(liaison)
        url = f"/api/v1/staging/{reading.key}/"
        assert client.get(url).json() == []
        [row] = client.post(f"{url}stage/", {"dataset": NAME}, format="json").json()
        assert (row["dataset"], row["storage"], row["state"]) == (NAME, "EXA_DISK", S.QUEUED)
        assert client.get(url).json() == [row]

        later = timezone.now() + 60 * MINUTE
        StagingRequest.objects.update(due_at=later, last_error="away", files_on_disk=7)
        [row] = client.post(f"{url}ask/", {"staging": row["id"]}, format="json").json()
        assert (row["error"], row["files_on_disk"]) == ("away", 7)
        assert StagingRequest.objects.get().due_at < later
        [row] = client.post(f"{url}cancel/", {"staging": row["id"]}, format="json").json()
        assert row["state"] == S.CANCELLED
        again = client.post(f"{url}cancel/", {"staging": row["id"]}, format="json")
        assert again.status_code == 409
        assert rucio.server.requests == []

    def test_what_cannot_be_staged_is_refused(self, reading, staged, liaison, nova, api):
        client = api(liaison)
        other = f"/api/v1/staging/{draft(liaison, nova).key}/"
        answers = [
            client.post(f"{other}stage/", {"dataset": NAME}, format="json"),
            client.post(f"{other}cancel/", {"staging": staged.pk}, format="json"),
            client.post(f"{other}ask/", {"staging": "x"}, format="json"),
        ]
        assert [answer.status_code for answer in answers] == [409, 400, 400]
        staged.refresh_from_db()
        assert staged.is_followed

    def test_permissions_are_those_of_the_page(
        self, rucio, nova, liaison, other_liaison, approver, shifter, admin, api
    ):
        submitted = request_in(
            "awaiting_approval",
            experiment=nova,
            by=liaison,
            approver=approver,
            stages=(stage("reco", input_dataset=NAME),),
        )
        url = f"/api/v1/staging/{submitted.key}/"
        posted = []
        read = []
        for user in (liaison, approver, shifter, admin, other_liaison, person("stranger")):
            client = api(user)
            read.append(client.get(url).status_code)
            posted.append(client.post(f"{url}stage/", {"dataset": NAME}, format="json").status_code)
        assert posted == [200, 200, 200, 403, 404, 404]
        assert read == [200, 200, 200, 200, 404, 404]
