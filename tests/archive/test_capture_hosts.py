"""The portal's end of the portal sink: who may send, and what is made of what may be anything."""

import io
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import zstandard
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from zstandard import ZstdCompressor

from apps.archive import delivery
from apps.archive.api import capture
from apps.archive.domain import capture_hosts
from apps.archive.domain.capture_hosts import (
    add_host_token,
    add_token_beside_portal,
    create_capture_host,
)
from apps.archive.models import (
    ArchivedJob,
    CaptureHost,
    IntakeBatch,
    RefusedJob,
    SinkDelivery,
    SinkState,
)
from apps.archive.tasks import archive_batches
from apps.clusters.models import Cluster
from apps.core.models import Event, Heartbeat
from apps.jobs.models import MaskingRule
from capture.wire import batches
from capture.wire.batches import BadBatch, BatchTooLarge, pack, unpack_untrusted
from capture.wire.report import CaptureReport
from tests.contracts.sink import SUBMITTED, a_job
from tests.factories.archive import archive_all, captured_job

REPORT = "/api/v1/capture/report/"
JOURNAL = "6f1c3f5e-9c0e-4c55-8a52-0a5a4a8f5f10"
TEXTS = ("cluster", "scheduler", "job_id", "user", "arguments", "caveat")


@pytest.fixture
def token(db, at):
    return create_capture_host(name="scheduler-1", clusters=["alps"], by="test", at=at)[1]


@pytest.fixture
def send(client, token):
    def post(url, body, media_type="application/json", token=token):
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        return client.post(
            url, body, content_type=media_type, headers={"Authorization": f"Bearer {token}"}
        )

    return post


def url_of(sequence=1, cluster="alps", journal=JOURNAL):
    return f"/api/v1/capture/batches/?cluster={cluster}&journal={journal}&sequence={sequence}"


JOBS = url_of()


def send_jobs(send, *jobs, sequence=1, **more):
    return send(url_of(sequence), pack(jobs), batches.MEDIA_TYPE, **more)


def test_batch_is_kept_once_and_archived_by_a_worker(send):
    jobs = [a_job(1, captured_at=SUBMITTED + timedelta(seconds=9)), a_job(2)]
    for received in (True, False):
        answer = send_jobs(send, *jobs, sequence=2)
        assert (answer.status_code, answer.json()) == (200, {"received": received})
    batch = IntakeBatch.objects.get()
    assert (batch.cluster, batch.host, str(batch.journal), batch.jobs) == (
        "alps",
        "scheduler-1",
        JOURNAL,
        2,
    )
    assert (batch.size_bytes, batch.captured_at) == (
        sum(job.size_bytes for job in jobs),
        jobs[1].captured_at,
    )
    assert CaptureHost.objects.get().heard_at is not None
    archive_batches()
    assert sorted(ArchivedJob.objects.values_list("job_id", "sender")) == [
        ("1", "scheduler-1"),
        ("2", "scheduler-1"),
    ]


@pytest.mark.parametrize("sender", ["", "scheduler-2"])
def test_host_cannot_send_jobs_as_another_one(send, sender):
    assert send_jobs(send, a_job(1, sender=sender)).status_code == 200
    archive_batches()
    assert ArchivedJob.objects.get().sender == "scheduler-1"


def test_sender_of_a_refused_job_is_kept_when_it_is_retried(send, at):
    send_jobs(send, a_job(1, user="\0"), a_job(2))
    archive_batches()
    refused = RefusedJob.objects.get()
    assert [job.sender for job in batches.unpack([bytes(refused.data)])] == ["scheduler-1"]


@pytest.mark.parametrize(
    ("host", "sender"), [("scheduler-1", "scheduler-1"), ("login.example.org", "")]
)
def test_job_that_waited_without_a_sender_has_its_capture_host(send, host, sender):
    """An earlier version noted no sender, and an empty one counts as capture beside
    the portal.
    """
    send_jobs(send, a_job(1), a_job(2))
    IntakeBatch.objects.update(host=host, data=pack([a_job(1), a_job(2)]))
    archive_batches()
    assert list(ArchivedJob.objects.values_list("sender", flat=True)) == [sender, sender]


def test_job_of_a_batch_taken_apart_has_its_capture_host(send, at):
    send_jobs(send, a_job(1), a_job(2))
    IntakeBatch.objects.update(data=pack([a_job(1), a_job(2)]))
    delivery.route_batches()
    SinkDelivery.objects.update(attempts=delivery.MOST_DEATHS, due_at=at)
    delivery.deliver(sink=SinkState.objects.get(), at=at)
    senders = [batches.unpack([bytes(batch.data)])[0].sender for batch in IntakeBatch.objects.all()]
    assert senders == ["scheduler-1", "scheduler-1"]


def test_batch_packed_as_a_stream_is_archived_too(send):
    stream = zstandard.ZstdCompressor().compressobj()
    whole = zstandard.ZstdDecompressor().decompress(pack([a_job(1)]))
    assert (
        send(JOBS, stream.compress(whole) + stream.flush(), batches.MEDIA_TYPE).status_code == 200
    )
    archive_batches()
    assert ArchivedJob.objects.get().job_id == "1"


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("/api/v1/capture/batches/", "sequence"),
        (url_of(sequence=0), "sequence"),
        (url_of(sequence=2**63), "sequence"),
        (url_of(journal="me"), "journal"),
        (url_of(cluster="a" * 65), "cluster"),
    ],
)
def test_batch_without_its_place_is_not_taken(send, url, field):
    answer = send(url, pack([a_job(1)]), batches.MEDIA_TYPE)
    assert answer.status_code == 400
    assert field in answer.json()
    assert not IntakeBatch.objects.exists()


def test_full_intake_takes_nothing_more_for_now(send, settings):
    settings.ARCHIVE_INTAKE_MAX_BYTES = 1
    assert send_jobs(send, a_job(1)).status_code == 200
    answer = send_jobs(send, a_job(2), sequence=2)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
    assert answer.json()["detail"].startswith(
        "The portal cannot take more for now: 1 bytes of captured jobs wait"
    )
    assert send_jobs(send, a_job(1)).json() == {"received": False}


def test_host_that_has_sent_too_much_in_a_day_keeps_its_jobs(send, settings, at):
    cache.clear()
    settings.CAPTURE_HOST_MAX_BYTES_PER_DAY = 1
    first = [send_jobs(send, a_job(1)) for _ in range(2)]
    assert [answer.status_code for answer in first] == [200, 503]
    assert first[1]["Retry-After"] == "30"
    assert "This host has sent 1 bytes of captured jobs today" in first[1].json()["detail"]
    other = create_capture_host(name="scheduler-2", clusters=["alps"], by="test", at=at)[1]
    assert (
        send(
            url_of(journal=str(uuid4())), pack([a_job(3)]), batches.MEDIA_TYPE, token=other
        ).status_code
        == 200
    )
    assert IntakeBatch.objects.count() == 2


def test_batch_over_the_limit_of_the_day_is_not_unpacked(send, settings, monkeypatch):
    cache.clear()
    settings.CAPTURE_HOST_MAX_BYTES_PER_DAY = 1
    assert send_jobs(send, a_job(1)).status_code == 200
    unpacked = []
    monkeypatch.setattr(capture, "unpack_untrusted", unpacked.append)
    assert send_jobs(send, a_job(2)).status_code == 503
    assert unpacked == []


def test_bad_jobs_are_refused_by_the_store_and_cost_the_others_nothing(send):
    strange = [a_job("9" * 65), a_job(3, user="\0"), a_job(4, stage="\udcff")]
    assert send_jobs(send, a_job(1), *strange, a_job(2)).status_code == 200
    archive_batches()
    assert sorted(ArchivedJob.objects.values_list("job_id", flat=True)) == ["1", "2"]
    reasons = dict(RefusedJob.objects.values_list("job_id", "reason"))
    assert reasons.keys() == {"9" * 65, "3", "4"}
    assert "value too long" in reasons["9" * 65]
    assert not IntakeBatch.objects.exists()


@pytest.mark.parametrize("given", ["", "wrong"])
def test_without_the_right_token_nothing_is_read(send, given):
    for url in (JOBS, REPORT):
        assert send(url, b"nonsense", batches.MEDIA_TYPE, token=given).status_code == 401


def test_token_of_a_person_opens_nothing(client, admin):
    client.force_login(admin)
    assert client.post(JOBS, pack([a_job(1)]), content_type=batches.MEDIA_TYPE).status_code == 401


def test_token_is_for_its_clusters_alone(send):
    for answer in (
        send_jobs(send, a_job(1), a_job(2, cluster="jura")),
        send(url_of(cluster="jura"), pack([a_job(1)]), batches.MEDIA_TYPE),
        send(REPORT, {"cluster": "jura", "report": {}}),
    ):
        assert answer.status_code == 403
        assert (
            answer.json()["detail"] == "The token of scheduler-1 is valid for alps, not for 'jura'."
        )
    assert not IntakeBatch.objects.exists()
    assert not Heartbeat.objects.exists()


def test_revoked_token_is_useless(send, at):
    host = CaptureHost.objects.get()
    newer = add_host_token(host=host, by="test", at=at)
    assert send_jobs(send, a_job(1)).status_code == 200
    newest = add_host_token(host=host, by="test", at=at, revoke_others=True)
    assert send_jobs(send, a_job(2)).status_code == 401
    assert send_jobs(send, a_job(2), token=newer).status_code == 401
    assert send_jobs(send, a_job(2), token=newest).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"no zstd",
        pack([a_job(1)])[:-5],
        ZstdCompressor().compress(b"[" * 100_000 + b"\n"),
        ZstdCompressor().compress(b'{"version": 2, "jobs": []}\n'),
        ZstdCompressor().compress(b'{"version": 1, "jobs": [1]}\n'),
        ZstdCompressor().compress(b'{"version": 1, "jobs": {"a": 1}}\n'),
        ZstdCompressor().compress(b'{"version": 1, "jobs": [{"sizes": [1, 0, 0]}]}\n'),
        ZstdCompressor().compress(b'{"version": 1, "jobs": [{"sizes": [-1, 1, 0]}]}\n'),
        ZstdCompressor().compress(b'{"version": 1, "jobs": []}\nmore'),
    ],
    ids=[
        "no zstd",
        "cut",
        "deep",
        "version",
        "no job",
        "no list",
        "too short",
        "negative",
        "too long",
    ],
)
def test_what_is_no_batch_is_said_so(send, body):
    answer = send(JOBS, body, batches.MEDIA_TYPE)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("The batch cannot be read: ")


def test_batch_that_did_not_come_is_not_taken_for_none(send):
    assert send(JOBS, b"", batches.MEDIA_TYPE).status_code == 400


def test_batch_that_is_too_large_is_said_so(send, monkeypatch):
    bomb = ZstdCompressor().compress(b"x" * (batches.MOST_BYTES + 1))
    assert len(bomb) < 10_000
    assert send(JOBS, bomb, batches.MEDIA_TYPE).status_code == 413
    monkeypatch.setattr("apps.archive.api.capture.ReceiveBatch.max_body_bytes", 100)
    assert send(JOBS, b"x" * 101, batches.MEDIA_TYPE).status_code == 413
    with pytest.raises(BatchTooLarge):
        unpack_untrusted(
            ZstdCompressor().compress(
                b'{"version": 1, "jobs": [%s1]}\n' % (b"1," * batches.MOST_JOBS)
            )
        )


def test_other_media_types_are_refused(send):
    assert send(JOBS, {"jobs": []}).status_code == 415


def test_report_shows_as_a_heartbeat_and_rules_are_told(send, client, token):
    MaskingRule.objects.create(applies_to="name", pattern="PIN")
    report = {
        "captured": 12,
        "waiting": None,
        "unreadable": ["no mapping"],
        "behind": 3,
        "more": {"deep": [1]},
    }
    report |= {"lag_seconds": "x", "portal_error": 5}
    assert send(REPORT, {"cluster": "alps", "report": report}).status_code == 204
    answer = client.get(REPORT, headers={"Authorization": f"Bearer {token}"})
    assert (answer.status_code, answer.json()) == (200, {"masking_rules": [["name", "PIN"]]})
    heart = Heartbeat.objects.get()
    assert (heart.name, heart.detail["host"], heart.detail["captured"]) == (
        "capture alps on scheduler-1",
        "scheduler-1",
        12,
    )
    read = CaptureReport.from_detail(heart.detail)
    assert (read.behind, read.lag_seconds, read.portal_error) == (3, 0, "")
    assert timezone.now() - heart.at < timedelta(minutes=1)


@pytest.mark.parametrize("report", [None, 1, "text", [], {"captured": 1e300, "incomplete": [1]}])
def test_report_may_be_anything(send, report):
    answer = send(REPORT, {"cluster": "alps", "report": report})
    assert answer.status_code in {204, 400}


_keys = st.sampled_from(
    ["captured", "unreadable", "incomplete", "a", "behind", "why_refused", "last_error"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(detail=json_values)
def test_any_report_can_be_read_and_written_again(detail):
    report = CaptureReport.from_detail(detail)
    assert CaptureReport.from_detail(json.loads(json.dumps(report.as_detail()))) == report


jobs_of_any_kind = st.builds(
    replace,
    st.just(a_job()),
    **{name: st.text(st.characters(), max_size=20) for name in TEXTS},
    **{name: st.binary(max_size=50) for name in ("script", "environment", "description")},
    submitted_at=st.timedeltas(-timedelta(days=9999), timedelta(days=9999)).map(
        lambda delta: SUBMITTED + delta
    ),
    masked_names=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


@given(jobs=st.lists(jobs_of_any_kind, max_size=5))
def test_batch_comes_out_as_it_went_in(jobs):
    assert unpack_untrusted(pack(jobs)) == jobs


@given(
    st.lists(jobs_of_any_kind, min_size=1, max_size=2), st.integers(0, 10_000), st.integers(1, 255)
)
def test_damaged_batch_is_told_from_a_good_one(jobs, place, change):
    batch = bytearray(pack(jobs))
    batch[place % len(batch)] ^= change
    with suppress(BadBatch):
        unpack_untrusted(bytes(batch))


def test_command_makes_hosts_and_tokens(db):
    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        call_command("capture_host", *arguments, stdout=out, stderr=err)
        return out.getvalue().strip(), err.getvalue()

    token, told = run("add", "sched", "--cluster", "alps", "--cluster", "jura")
    assert "hands over to CAPTURE_PORTAL=http" in told
    assert capture_hosts.host_of(token).clusters == ["alps", "jura"]
    second, _ = run("token", "sched", "--revoke-others")
    assert (capture_hosts.host_of(token), capture_hosts.host_of(second).name) == (None, "sched")
    assert run("list")[0] == "sched\talps, jura\theard never\t1 tokens"
    run("revoke", "sched")
    assert capture_hosts.host_of(second) is None
    assert token not in str(list(Event.objects.values()))
    for wrong in (
        ("add", "sched", "--cluster", "alps"),
        ("add", "other", "--cluster", "../x"),
        ("token", "none"),
    ):
        with pytest.raises(CommandError, match=r"\S"):
            run(*wrong)


def test_back_office_makes_hosts_and_shows_tokens_once(client, admin):
    Cluster.objects.create(name="alps", scheduler="slurm")
    client.force_login(admin)
    page = client.post(
        "/admin/archive/capturehost/add/", {"name": "sched", "clusters": "alps,jura"}, follow=True
    )
    added, token, warning = page.context["messages"]
    assert "Added the capture host “" in str(added)
    assert "shown only once" in str(token)
    assert "No cluster with this name yet: jura. Check the spelling." in str(warning)
    shown = page.content.decode().partition("shown only once: <code>")[2][:43]
    assert capture_hosts.host_of(shown).clusters == ["alps", "jura"]
    host = CaptureHost.objects.get()
    assert not host.trusted
    client.post(
        f"/admin/archive/capturehost/{host.pk}/change/", {"clusters": "alps", "trusted": "on"}
    )
    assert CaptureHost.objects.get().clusters == ["alps"]
    assert capture_hosts.trusted_hosts() == {"", "sched"}
    assert Event.objects.get(kind="capture_host.changed").data["trusted"] is True
    assert "alps" in client.get("/admin/archive/capturehost/").content.decode()
    page = client.get(f"/admin/archive/capturehost/{host.pk}/change/").text
    assert ">Add a token</button>" in page
    assert "never" in page
    CaptureHost.objects.update(heard_at=datetime(2026, 11, 30, 17, 19, tzinfo=UTC))
    heard = client.get(f"/admin/archive/capturehost/{host.pk}/change/").text
    assert "30 Nov 2026 17:19" in heard
    chosen = {"action": "new_token", "_selected_action": [host.pk]}
    assert "shown only once" in client.post("/admin/archive/capturehost/", chosen, follow=True).text
    for action, effect in (
        ("revoke_older", "Only the newest token"),
        ("revoke_tokens", "can send no jobs until they have a new token"),
    ):
        before = CaptureHost.objects.get().token_hashes
        chosen["action"] = action
        page = client.post("/admin/archive/capturehost/", chosen).text
        assert effect in page
        assert f'name="action" value="{action}"' in page
        assert CaptureHost.objects.get().token_hashes == before
        client.post("/admin/archive/capturehost/", {**chosen, "confirmed": "yes"})
        tokens = CaptureHost.objects.get().token_hashes
        assert tokens == (before[:1] if action == "revoke_older" else [])
    assert capture_hosts.host_of(shown) is None
    changes = client.get("/admin/admin/logentry/").text
    for action in ("Added a token.", "Revoked older tokens.", "Revoked all tokens."):
        assert action in changes


@pytest.mark.django_db
def test_capture_beside_the_portal_is_no_sender_until_its_trust_is_taken_back(at):
    token = add_token_beside_portal(name="here", cluster="alps", by="test", at=at)
    for sequence, sender in ((1, ""), (2, "here")):
        host = capture_hosts.host_of(token)
        receive(host, captured_job(sequence, sender="forged"), sequence=sequence, at=at)
        archive_all()
        assert ArchivedJob.objects.get(job_id=str(sequence)).sender == sender
        CaptureHost.objects.update(trusted=False)


@pytest.mark.django_db
def test_another_host_of_the_same_name_does_not_come_to_be_beside_the_portal(at):
    create_capture_host(name="here", clusters=["alps"], by="test", at=at)
    for cluster in ("alps", "jura"):
        token = add_token_beside_portal(name="here", cluster=cluster, by="test", at=at)
    assert capture_hosts.host_of(token).name == "here-portal"
    hosts = CaptureHost.objects.values_list("name", "clusters", "trusted", "beside_portal")
    assert set(map(repr, hosts)) == {
        "('here', ['alps'], False, False)",
        "('here-portal', ['alps', 'jura'], True, True)",
    }


def receive(host, *jobs, sequence, at, content=b""):
    return capture_hosts.receive_batch(
        host=host,
        cluster="alps",
        journal=UUID(int=7),
        sequence=sequence,
        jobs=jobs,
        content=content or pack(jobs),
        at=at,
    )


@pytest.mark.django_db
@pytest.mark.parametrize(("named", "is_kept"), [("", True), ("forged", False)])
def test_batch_beside_the_portal_is_stored_as_it_came_unless_it_names_a_sender(named, is_kept, at):
    token = add_token_beside_portal(name="here", cluster="alps", by="test", at=at)
    job = captured_job(1, sender=named)
    receive(capture_hosts.host_of(token), job, sequence=1, at=at)
    data = bytes(IntakeBatch.objects.get().data)
    assert (data == pack([job])) is is_kept
    assert [job.sender for job in batches.unpack([data])] == [""]


@pytest.mark.django_db
def test_stream_beside_the_portal_is_packed_again(at):
    token = add_token_beside_portal(name="here", cluster="alps", by="test", at=at)
    job = captured_job(1)
    compressor = zstandard.ZstdCompressor().compressobj()
    stream = compressor.compress(zstandard.decompress(pack([job]))) + compressor.flush()
    receive(capture_hosts.host_of(token), job, sequence=1, at=at, content=stream)
    assert batches.unpack([bytes(IntakeBatch.objects.get().data)]) == [job]
