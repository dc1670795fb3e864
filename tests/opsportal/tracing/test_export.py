"""What leaves the portal, and what happens if nobody takes it."""

import logging
import os
import subprocess
import sys
import time

import pytest
from django.core import checks
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from apps.core.domain.secrets.log_formats import formatter
from dev.processes import free_port
from opsportal.env import BadEnvironment, Environment
from opsportal.setting_values import split_headers
from opsportal.tracing import cleaning, export
from tests.opsportal.tracing.collector import Collector


@pytest.fixture
def make_span():
    """Make a span as a library does, and return it."""
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))

    def make(error: Exception | None = None, **attributes):
        named = {name.replace("_", "."): value for name, value in attributes.items()}
        try:
            with provider.get_tracer("test").start_as_current_span("x", attributes=named):
                if error:
                    raise error
        except ValueError:
            pass
        return memory.get_finished_spans()[-1]

    return make


@pytest.fixture
def start_exporter():
    """Return an exporter; the filter of its reasons lasts as long as a process."""
    started = []

    def start(url: str) -> export.Exporter:
        started.append(export.Exporter(url, export.Pause()))
        return started[-1]

    yield start
    for exporter in started:
        exporter.shutdown()
        trace_exporter._logger.removeFilter(exporter._reason)


@pytest.mark.parametrize(
    ("statement", "masked"),
    [
        ("SELECT 1 WHERE name = 'it''s ann' AND x = %s", "SELECT 1 WHERE name = ? AND x = %s"),
        (r"SELECT E'it\'s ann', 'b'", "SELECT ?, ?"),
        ('SELECT $$ann$$, $x$a\'nn$x$, "Name"', 'SELECT ?, ?, "Name"'),
        ("SELECT 'ann\nbo'", "SELECT ?"),
    ],
)
def test_strings_in_sql_are_masked(statement, masked):
    assert cleaning.mask_literals(statement) == masked


def test_error_is_its_class_alone(make_span):
    span = cleaning.clean(make_span(error=ValueError("Key (username)=(ann) already exists.")))
    assert span.attributes == {"error.type": "ValueError"}
    assert (span.status.description, span.events) == (None, ())
    assert not span.status.is_ok


def test_url_is_its_server_alone(make_span):
    span = make_span(url_full="https://ann:x@hooks.example.org:8443/services/T0/B0?token=x#y")
    assert cleaning.clean(span).attributes == {
        "url.scheme": "https",
        "server.address": "hooks.example.org",
        "server.port": 8443,
    }


def test_unknown_attributes_and_long_statements_are_cut(make_span):
    span = make_span(client_address="10.1.2.3", db_query_text="SELECT " + "%s, " * 10_000)
    attributes = cleaning.clean(span).attributes
    assert attributes.keys() == {"db.query.text"}
    assert len(attributes["db.query.text"]) == cleaning.MOST_CHARACTERS


def test_outage_is_one_line_and_one_try(make_span, start_exporter, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    port = free_port()
    exporter = start_exporter(f"http://127.0.0.1:{port}/")
    assert exporter.export([make_span()]) is SpanExportResult.FAILURE
    began = time.monotonic()
    for _ in range(100):
        assert exporter.export([make_span()]) is SpanExportResult.FAILURE
    assert time.monotonic() - began < 0.1
    with Collector(port).running() as collector:
        exporter._pause.write(0.001)  # it is over
        assert exporter.export([make_span()]) is SpanExportResult.SUCCESS
        assert len(collector.bodies) == 1
    assert [record.name for record in caplog.records] == ["opsportal.tracing.export"] * 2
    down, up = caplog.messages
    assert down.startswith(f"The collector of traces, http://127.0.0.1:{port}/, takes none")
    assert "Connection refused" in down
    assert up == "The collector of traces takes them again."


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
def test_processes_of_a_server_share_the_pause():
    pause = export.Pause()
    if not (child := os.fork()):
        pause.write(12.5)
        os._exit(0)
    os.waitpid(child, 0)
    assert pause.read() == 12.5


def test_reason_of_a_refusal_is_logged(make_span, start_exporter, caplog):
    with Collector(status=401).running() as collector:
        exporter = start_exporter(collector.url)
        exporter.export([make_span()])
    assert "code: 401, reason: Unauthorized" in caplog.text


SENDER = """
import django
django.setup()
from kombu.exceptions import OperationalError
from opsportal import tracing
from opsportal.celery import app
tracing.instrument(app)
tracing.start(tracing.BEAT)
for _ in range(3):
    try:
        app.send_task("of.another.process")
    except OperationalError:
        pass
tracing.stop()
"""


def test_task_that_cannot_be_sent_is_no_parent_of_the_next(tmp_path):
    """Beat sends tasks by names that it does not know."""
    with Collector().running() as collector:
        variables = {
            "DJANGO_SETTINGS_MODULE": "opsportal.settings",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_SAMPLER": "always_on",
            "REDIS_URL": "redis://127.0.0.1:1/0",
        }
        done = run_python(SENDER, **variables)
        assert done.returncode == 0, done.stderr
        spans = collector.spans()
    assert [span.parent for span in spans] == ["", "", ""]
    assert {span.name for span in spans} == {"send of.another.process"}
    assert all(span.is_error and span.service == "opsportal-beat" for span in spans)


def run_python(code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_missing_packages_are_named(settings, monkeypatch):
    settings.TRACES = True
    monkeypatch.delitem(sys.modules, "opsportal.tracing.instruments", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    [warning] = checks.run_checks(tags=["traces"], include_deployment_checks=True)
    assert warning.msg == (
        "OTEL_EXPORTER_OTLP_ENDPOINT is set, but the package opentelemetry is missing: there are "
        "no traces. Install opsportal[traces], see docs/production.md."
    )


def test_nothing_is_missing_where_traces_are_off(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert not settings.TRACES
    assert checks.run_checks(tags=["traces"], include_deployment_checks=True) == []


def test_line_of_text_has_the_ids():
    record = logging.LogRecord("x", logging.INFO, "f", 1, "words", (), None)
    record.request_id, record.trace_id, record.span_id = "773f", "0af7", "b7ad"
    text = formatter("text").format(record)
    assert " [773f trace_id=0af7 span_id=b7ad] INFO x: words" in text


def test_headers_are_decoded():
    headers = split_headers("Authorization=Bearer%20a%2Cb, X-Tenant = opg")
    assert headers == {"Authorization": "Bearer a,b", "X-Tenant": "opg"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "otel:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:secret@otel:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Bearer secret"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
    ],
)
def test_bad_settings_are_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(BadEnvironment, match=name) as error:
        Environment.read()
    assert "secret" not in str(error.value)
