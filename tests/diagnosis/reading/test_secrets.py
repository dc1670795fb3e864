"""What is stored and shown of a log has stars in place of secrets, at the same offsets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.diagnosis.domain.reading.excerpts import excerpt_of
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.secrets import starred
from apps.diagnosis.enums import Stream
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest, Verdict
from tests.pumps import within

SECRETS = (
    b"hunter2",
    b"eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM",
    b"alice:pa55word@",
    b"s3cr3t",
    b"geheim",
)
BODY = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "MzEfYyji0aUjkaQ=")
KEY = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(BODY) + "\n-----END PRIVATE KEY-----\n"
LOG = f"""export GRID_TOKEN={SECRETS[0].decode()} OTHER=fine
sent {SECRETS[1].decode()} along, "token": "{SECRETS[3].decode()}"
Fetching https://{SECRETS[2].decode()}door.example.org/x with Authorization: Bearer {SECRETS[4].decode()}
{KEY}password: {SECRETS[0].decode()}
[FATAL] Auth failed --password {SECRETS[4].decode()}
"""
HIDDEN = (*(secret.decode() for secret in SECRETS), *BODY)


def leaks(text: str) -> list[str]:
    return [secret for secret in HIDDEN if secret in text]


def harvest(job, at) -> None:
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_batch(at=at)


def test_secrets_are_not_stored_and_offsets_stay(make_job, at):
    harvest(make_job(log=LOG), at)
    kept = LogExcerpt.objects.get().data
    assert len(kept) == len(LOG)
    hit = Evidence.objects.get(pattern="XRD-AUTH")
    assert hit.offset == LOG.index("[FATAL]")
    verdict = Verdict.objects.select_related("group").get()
    stored = (
        kept.decode()
        + hit.text
        + str(verdict.reasons)
        + verdict.summary
        + verdict.group.line
        + verdict.group.title
    )
    assert leaks(stored) == []
    assert "OTHER=fine" in stored
    assert "Auth failed" in hit.text


def test_error_far_before_the_end_of_a_large_log_is_stored_without_its_secret(make_job, at):
    harvest(make_job(log=LOG + "nothing\n" * 600_000), at)
    verdict = Verdict.objects.select_related("group").get()
    assert "Auth failed" in verdict.group.line
    assert (
        leaks(
            str(verdict.reasons)
            + verdict.summary
            + verdict.group.line
            + Evidence.objects.get().text
        )
        == []
    )


def test_excerpt_of_a_successful_job_has_none_either():
    data = LOG.encode()
    kept = excerpt_of(LogHarvest(), "x", Block(data, 0, len(data), 1)).data
    assert kept == starred(data) != data


@pytest.fixture
def logs_of(make_job, client, liaison, at):
    """Return all that pages and API show of the log of a job."""

    def shown(log: str, *, is_read: bool) -> dict[str, str]:
        job = make_job(log=log)
        if is_read:
            harvest(job, at)
        client.force_login(liaison)
        raw = client.get(f"/jobs/{job.pk}/log/raw/")
        pages = {
            "job": f"/jobs/{job.pk}/",
            "log": f"/jobs/{job.pk}/log/",
            "plain": f"/jobs/{job.pk}/log/?fold=no",
            "search": f"/jobs/{job.pk}/log/?find=hunter2",
            "API": f"/api/v1/jobs/{job.pk}/log/?lines=500",
            "API of the start": f"/api/v1/jobs/{job.pk}/log/?lines=10&before={log.index(BODY[1])}",
            "API of verdicts": "/api/v1/verdicts/",
        }
        texts = {}
        for name, address in pages.items():
            response = client.get(address)
            assert response.status_code == 200, name
            texts[name] = response.content.decode()
        # The page repeats what was searched.
        texts["search"] = texts["search"].replace("find=hunter2", "").replace('value="hunter2"', "")
        return texts | {"raw": b"".join(raw.streaming_content).decode()}

    return shown


@pytest.mark.parametrize("is_read", [True, False])
def test_secrets_are_not_shown(logs_of, is_read):
    shown = logs_of(LOG, is_read=is_read)
    assert {name: leaks(text) for name, text in shown.items() if leaks(text)} == {}
    assert shown["raw"] == starred(LOG.encode()).decode()
    for name in ("job", "log", "plain", "API"):
        assert "OTHER=fine" in shown[name], name


def test_search_finds_no_secret(logs_of):
    """Else it would confirm one letter after the other."""
    assert "no match" in logs_of(LOG, is_read=False)["search"]


@pytest.mark.parametrize("lines", [10, 50])
def test_window_inside_a_private_key_is_starred(make_job, lines):
    body = "\n".join(BODY[:2] * 60)
    log = f"before\n-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\nafter\n"
    job = make_job(log=log)
    for place in (
        {"before": log.index("\n-----END") - 300},
        {"offset": log.index("\n-----END") - 2000},
    ):
        view = log_view(job, stream=Stream.STDOUT, lines=lines, **place)
        assert view.lines
        assert {set(shown.line.text) == {"*"} for shown in view.lines} == {True}


PIECES = [
    *SECRETS,
    *(f"{line}\n".encode() for line in KEY.split("\n")),
    b"token=",
    b"password: ",
    b"\n",
    b"\r\n",
    b" ",
    b"x" * 5000,
    b"://",
    b"\xff",
    b'"',
    b"--password ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
@settings(max_examples=100)
def test_length_and_lines_stay_whatever_is_starred(pieces):
    data = b"".join(pieces)
    kept = starred(data)
    assert len(kept) == len(data)
    assert [at for at, byte in enumerate(kept) if byte == 10] == [
        at for at, byte in enumerate(data) if byte == 10
    ]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
@settings(max_examples=100)
def test_starred_twice_is_as_starred_once(pieces):
    """Else an excerpt could not be compared with its log."""
    once = starred(b"".join(pieces))
    assert starred(once) == once


@pytest.mark.parametrize(
    "line", [b"A_TOKEN=abcdefgh1234\n", b"token: expired\n", b"password: x", KEY.encode()]
)
def test_log_of_nothing_but_secrets_keeps_no_worker_busy(line):
    with within():
        starred(line * (200_000 // len(line)))
