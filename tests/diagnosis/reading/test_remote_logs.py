"""Logs on web servers: fetched from listed servers only, bounded in time and size,
never redirected.
"""

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.exceptions import ValidationError

from apps.clusters.models import Cluster
from apps.diagnosis.domain.reading.job_facts import log_paths
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.diagnosis.engine.logs import remote
from apps.diagnosis.engine.logs.tail import LogPart, LogUnreadable
from apps.diagnosis.models import LogExcerpt, LogHarvest, Verdict
from tests.programs.dripping_server import BODY, HEADERS, PATIENCE_SECONDS, TLS_HANDSHAKE, dripping

LOG = b"start\n[FATAL] Auth failed\n"


class Logs(BaseHTTPRequestHandler):
    """Answers by the path that is asked for."""

    def do_GET(self):
        self.server.asked.append(self.path)
        kind = self.path.strip("/").partition("-")[0]
        status = {"gone": 404, "elsewhere": 302, "broken": 500, "range": 206, "empty": 416}.get(
            kind, 200
        )
        self.send_response(status)
        if kind == "elsewhere":
            self.send_header("Location", "http://127.0.0.1:1/secret")
        if kind == "range":
            self.send_header("Content-Range", f"bytes 100-{100 + len(LOG) - 1}/{100 + len(LOG)}")
        self.send_header("Content-Length", str(len(LOG)))
        self.end_headers()
        for byte in range(len(LOG)):
            if kind == "drip":
                time.sleep(0.1)
            self.wfile.write(LOG[byte : byte + 1])

    def log_message(self, *_):
        """Stay quiet."""


@pytest.fixture
def server(settings):
    served = ThreadingHTTPServer(("127.0.0.1", 0), Logs)
    served.asked, served.handle_error = [], lambda *_: None  # a client that gives up
    threading.Thread(
        target=served.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    settings.LOG_SERVERS = [f"http://127.0.0.1:{served.server_port}"]
    yield served
    served.shutdown()
    served.server_close()


@pytest.fixture
def harvested(make_job, at, server):
    """Harvest a job whose cluster has this path as the URL of logs, until it has a verdict."""

    def harvest(path: str) -> tuple[str, str, list[str]]:
        job = make_job(log_path="/etc/passwd")
        job.cluster.options = {"log_url": f"http://127.0.0.1:{server.server_port}/{path}"}
        job.cluster.save()
        queue_harvests(job_pks=[job.pk], at=at)
        for _ in range(3):
            harvest_batch(at=at)
            LogHarvest.objects.update(due_at=at)
        verdict = Verdict.objects.get()
        return (
            LogHarvest.objects.get().state,
            verdict.cause,
            [reason["text"] for reason in verdict.reasons],
        )

    return harvest


def test_log_is_fetched_by_the_ids_of_its_attempt(harvested, server, client, shifter):
    assert harvested("job-{raw_id}/{attempt}?s={stream}")[:2] == ("done", "XRD-AUTH")
    job = LogHarvest.objects.get().job
    assert sorted(server.asked) == [
        f"/job-{job.raw_id}/1?s=stderr",
        f"/job-{job.raw_id}/1?s=stdout",
    ]
    client.force_login(shifter)
    page = client.get(f"/jobs/{job.pk}/log/").content.decode()
    assert "is read when the job ends. Showing the stored excerpt." in page
    assert "Auth failed" in page
    assert len(server.asked) == 2


def test_empty_log_has_no_last_bytes(server):
    """The server answers 416, with a page that says so."""
    servers = [f"http://127.0.0.1:{server.server_port}"]
    with remote.fetched(f"{servers[0]}/empty-1", servers) as (descriptor, part):
        assert (os.fstat(descriptor).st_size, part) == (0, LogPart(0))


def test_end_of_a_large_log_is_fetched_and_keeps_its_offsets(harvested):
    assert harvested("range-{job_id}")[:2] == ("done", "XRD-AUTH")
    assert (LogExcerpt.objects.get().first_offset, LogExcerpt.objects.get().size_bytes) == (
        100,
        100 + len(LOG),
    )


@pytest.mark.parametrize(
    ("path", "state", "reason"),
    [
        ("gone-{job_id}", "log_not_found", "not found (404)"),
        (
            "elsewhere-{job_id}",
            "path_not_allowed",
            "redirects to http://127.0.0.1:1/secret, which is not followed",
        ),
        ("broken-{job_id}", "failed", "the server answered 500"),
        ("drip-{job_id}", "failed", "timed out recently"),
    ],
)
def test_what_is_no_log_is_said(harvested, server, monkeypatch, path, state, reason):
    monkeypatch.setattr(remote, "LIMIT_SECONDS", 0.3)
    harvest = harvested(path)
    assert harvest[:2] == (state, "")
    assert reason in " ".join(harvest[2])
    assert "/secret" not in server.asked


@pytest.mark.parametrize(
    ("scheme", "beginning"), [("https", TLS_HANDSHAKE), ("http", HEADERS), ("http", BODY)]
)
def test_server_that_drips_is_cut_off_and_left_alone(monkeypatch, scheme, beginning):
    monkeypatch.setattr(remote, "LIMIT_SECONDS", 0.3)
    with dripping(beginning) as port:
        server = f"{scheme}://127.0.0.1:{port}"
        begun = time.monotonic()
        for reason in ("not received completely", "timed out recently"):
            with (
                pytest.raises(LogUnreadable, match=reason),
                remote.fetched(f"{server}/log", [server]),
            ):
                pass
        assert time.monotonic() - begun < PATIENCE_SECONDS


def test_server_that_is_not_listed_is_not_asked(harvested, server, settings):
    settings.LOG_SERVERS = ["https://logs.example.org"]
    assert harvested("job-{job_id}")[0] == "path_not_allowed"
    assert server.asked == []


def test_what_a_job_chooses_leads_nowhere_else(make_job):
    job = make_job(user="../../admin?x=#", job_id="1")
    job.cluster.options = {"log_url": "https://logs.example.org/{user}/{job_id}"}
    assert log_paths(job)[0][1] == "https://logs.example.org/%2E%2E%2F%2E%2E%2Fadmin%3Fx%3D%23/1"


@pytest.mark.parametrize(
    "url",
    [
        "https://x.org/log",
        "ftp://x.org/{job_id}",
        "https://x.org/{job_id.x}",
        "https://{user}/{job_id}",
        1,
    ],
)
def test_url_without_an_id_or_with_another_field_is_refused(db, url):
    with pytest.raises(ValidationError, match="log_url: write a URL"):
        Cluster(name="alps", scheduler="slurm", options={"log_url": url}).clean()
