"""Traces of a real web server and a real worker, as a collector gets them.

Both run once for all tests, with requests that hold secrets wherever they may.
"""

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import redis
import urllib3
from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.utils.http import urlsafe_base64_encode

from apps.accounts.models import User
from apps.statusboard.models import MonitoringSource
from opsportal.celery import app as celery_app
from tests.database import copy_rows, restore_rows
from tests.factories.statusboard import source
from tests.opsportal.tracing.collector import Collector, Span
from tests.opsportal.tracing.portal import Portal, wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("traces")]

FORGOTTEN = "/accounts/password/forgotten/"
SEND, RUN = "send accounts.mail_password_link", "run accounts.mail_password_link"
REQUEST_ID = "773fa6885e03493498077a273d1b7f2d"
FOREIGN_TRACE = "0af7651916cd43dd8448eb211c80319c"
#: Occurs in URLs, headers and rows.
SECRET = "TopSecret"
#: Far less than a try to reach the collector takes.
QUICK_SECONDS = 1.0


@dataclass
class Traffic:
    """What the collector and the logs got."""

    spans: list[Span]
    bodies: bytes
    headers_of_pull: dict[str, str]
    seconds_without_collector: float
    seconds_of_stop: float
    web_log: str
    worker_log: str

    def named(self, name: str) -> Span:
        return next(span for span in self.spans if span.name == name)

    def children(self, of: Span) -> list[Span]:
        return [span for span in self.spans if span.parent == of.id]


@pytest.fixture(scope="module")
def traffic(django_db_setup, django_db_blocker, tmp_path_factory):
    """Run web server and worker, send requests and tasks, then stop the collector."""
    directory = tmp_path_factory.mktemp("portal")
    with django_db_blocker.unblock():
        rows = copy_rows()
        try:
            yield run_portal(directory)
        finally:
            restore_rows(rows)
            redis.from_url(os.environ["REDIS_URL"]).delete("default")


def run_portal(directory) -> Traffic:
    ann = User.objects.create_user(f"ann-{SECRET}", f"{SECRET}@example.org", "x")
    collector = Collector()
    portal = Portal(
        directory,
        EMAIL_URL="smtp://127.0.0.1:1",
        FEED_HOSTS=collector.url.removeprefix("http://"),
        LOG_FORMAT="json",
        LOG_LEVEL="DEBUG",
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_TIMEOUT="2",
        OTEL_TRACES_SAMPLER_ARG="1",
    )
    with portal.serving() as web, portal.working():
        with collector.running():
            send_requests(portal, ann)
            pull = source(datetime.now(UTC))
            MonitoringSource.objects.update(pull_url=f"{collector.url}/{SECRET}?q={SECRET}")
            celery_app.send_task("statusboard.pull_source", kwargs={"source_id": pull.pk})
            wait_until(lambda: {RUN, "run statusboard.pull_source"} <= names_in(collector))
            time.sleep(0.5)  # what is still on its way
        seconds_without_collector = call_without_collector(portal)
        began = time.monotonic()
        web.terminate()
        web.wait()
        seconds_of_stop = time.monotonic() - began
    return Traffic(
        spans=collector.spans(),
        bodies=b"".join(collector.bodies),
        headers_of_pull=collector.headers_of_calls[0],
        seconds_without_collector=seconds_without_collector,
        seconds_of_stop=seconds_of_stop,
        web_log=portal.log("gunicorn"),
        worker_log=portal.log("celery"),
    )


def send_requests(portal: Portal, ann: User) -> None:
    http = urllib3.PoolManager(retries=False)
    csrf_token = "c" * 32
    http.request(
        "POST",
        f"{portal.url}{FORGOTTEN}?q={SECRET}",
        fields={"email": ann.email},
        encode_multipart=False,
        headers={
            "Authorization": f"Bearer {SECRET}",
            "Baggage": f"user={SECRET}",
            "Cookie": f"csrftoken={csrf_token}; other={SECRET}",
            "Traceparent": f"00-{FOREIGN_TRACE}-b7ad6b7169203331-01",
            "User-Agent": SECRET,
            "X-CSRFToken": csrf_token,
            "X-Request-ID": REQUEST_ID,
        },
    )
    ann.refresh_from_db()
    link = (
        f"{urlsafe_base64_encode(str(ann.pk).encode())}/{default_token_generator.make_token(ann)}"
    )
    for path in (f"/accounts/password/new/{link}/", f"/feeds/{SECRET}/inbox.atom"):
        http.request("GET", portal.url + path)
    http.request(
        "POST",
        f"{portal.url}/api/v1/capture/batches/",
        body=b"x",
        headers={"Authorization": f"Token {SECRET}"},
    )


def names_in(collector: Collector) -> set[str]:
    return {span.name for span in collector.spans()}


def call_without_collector(portal: Portal) -> float:
    """Send requests until the log says that the collector is down; return the longest time."""
    longest = 0.0

    def is_logged() -> bool:
        nonlocal longest
        began = time.monotonic()
        urllib3.request("GET", f"{portal.url}/requests/", redirect=False)
        longest = max(longest, time.monotonic() - began)
        return "The collector of traces" in portal.log("gunicorn")

    wait_until(is_logged)
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        is_logged()
    return longest


def test_a_request_its_task_and_their_queries_are_one_trace(traffic):
    request = traffic.named("POST accounts/password/forgotten/")
    send, run = traffic.named(SEND), traffic.named(RUN)
    assert (request.service, request.kind, request.parent) == ("opsportal-web", "SERVER", "")
    assert (send.service, send.kind, send.parent) == ("opsportal-web", "PRODUCER", request.id)
    assert (run.service, run.kind, run.parent) == ("opsportal-worker", "CONSUMER", send.id)
    assert {span.trace for span in (request, send, run)} == {request.trace}
    for parent, statement in ((request, 'INSERT INTO "core_event"'), (run, 'FROM "accounts_user"')):
        statements = [span.attributes.get("db.query.text", "") for span in traffic.children(parent)]
        assert any(statement in text and "%s" in text for text in statements)


def test_processes_after_a_fork_are_named(traffic):
    resources = {span.service: span.resource for span in traffic.spans}
    assert resources.keys() == {"opsportal-web", "opsportal-worker"}
    instances = {resource["service.instance.id"] for resource in resources.values()}
    assert len(instances) == 2
    versions = {resource["service.version"] for resource in resources.values()}
    assert versions == {settings.PORTAL_VERSION}


def test_request_id_joins_log_and_trace(traffic):
    run = traffic.named(RUN)
    assert run.attributes["opsportal.request_id"] == REQUEST_ID
    request = traffic.named("POST accounts/password/forgotten/")
    assert request.attributes["opsportal.request_id"] == REQUEST_ID
    lines = [json.loads(line) for line in traffic.worker_log.splitlines() if line.startswith("{")]
    retried = next(line for line in lines if "retry" in line["message"].lower())
    assert (retried["request_id"], retried["trace_id"], retried["span_id"]) == (
        REQUEST_ID, run.trace, run.id,
    )  # fmt: skip
    assert all("trace_id" not in line for line in lines if line["logger"] == "celery.bootsteps")


def test_failed_task_has_the_class_of_its_error_without_the_message(traffic):
    run = traffic.named(RUN)
    assert run.is_error
    assert run.attributes["error.type"] == "ConnectionRefusedError"
    assert run.attributes["celery.state"] == "RETRY"
    assert run.message == ""


def test_call_of_another_server_names_it_without_path_and_hands_the_trace_on(traffic):
    call = traffic.named("GET")
    assert call.kind == "CLIENT"
    assert call.parent == traffic.named("run statusboard.pull_source").id
    assert call.attributes.keys() == {
        "http.request.method", "http.response.status_code", "server.address", "server.port",
        "url.scheme",
    }  # fmt: skip
    assert traffic.headers_of_pull["traceparent"].startswith(f"00-{call.trace}-{call.id}-")


def test_paths_with_tokens_are_routes(traffic):
    names = {span.name for span in traffic.spans}
    assert "GET accounts/password/new/<str:uidb64>/<str:token>/" in names
    assert any(name.startswith("GET feeds/<") for name in names)
    assert any(name.startswith("POST api/v1/capture/") for name in names)


def test_no_secret_and_no_person_is_in_a_trace(traffic):
    assert SECRET.encode() not in traffic.bodies
    assert b"set-password" not in traffic.bodies
    for span in traffic.spans:
        assert not span.events
        assert not span.attributes.keys() & {"client.address", "db.user", "url.path", "url.full"}


def test_client_decides_nothing(traffic):
    assert FOREIGN_TRACE not in {span.trace for span in traffic.spans}
    assert "Baggage" not in traffic.headers_of_pull


def test_probes_and_heartbeats_make_no_traces(traffic):
    roots = {span.name for span in traffic.spans if not span.parent}
    assert not any("healthz" in name for name in roots)
    assert {name.partition(" ")[0] for name in roots} <= {"GET", "POST", "run", "send"}


def test_collector_that_is_down_costs_nothing_but_a_line(traffic):
    assert traffic.web_log.count("The collector of traces") == 1
    assert "Connection refused" in traffic.web_log
    lines = [json.loads(line) for line in traffic.web_log.splitlines()]
    loggers = [line["logger"] for line in lines if line["level"] != "DEBUG"]
    assert not any(logger.startswith("opentelemetry") for logger in loggers)
    assert traffic.seconds_without_collector < QUICK_SECONDS
    assert traffic.seconds_of_stop < 10
