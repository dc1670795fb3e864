"""What the URL and the settings of the Elasticsearch sink mean,
without a server or with one that is made up.
"""

import base64
import json
import threading
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apps.archive.sinks.base import BadSink, SinkUnavailable, SinkURL
from apps.archive.sinks.elasticsearch.documents import document, document_id
from apps.archive.sinks.elasticsearch.index import Index
from apps.archive.sinks.registry import open_sink
from tests.archive.sinks.elasticsearch_reading import job_of
from tests.contracts.sink import a_job, packed
from tests.programs.certificates import self_signed, speak_tls


def index_of(options):
    return Index.from_url(SinkURL.parse(f"elasticsearch://es1/jobs{options}"))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("elasticsearch:///jobs", "names no host"),
        ("elasticsearch://es1:9200", "is not an index name"),
        ("elasticsearch://es1:9200/", "is not an index name"),
        ("elasticsearch://es1:9200/Jobs", "is not an index name"),
        ("elasticsearch://es1:9200/-jobs", "is not an index name"),
        ("elasticsearch://es1:9200/jobs/_doc", "is not an index name"),
        ("elasticsearch://es1:9200/jobs,others", "is not an index name"),
        ("elasticsearch://es1/jobs?replicas=many", "replicas is a number from 0"),
        ("elasticsearch://es1/jobs?shards=0", "shards is a number from 1"),
        ("elasticsearch://es1/jobs?codec=rar", "codec is one of default, best_compression"),
        ("elasticsearch://es1/jobs?period=weekly", "period is one of daily, monthly, yearly"),
        ("elasticsearch://es1/jobs?retention=30", "retention needs period"),
        ("elasticsearch://es1/jobs?period=daily&retention=30&ilm=keep", "give only one"),
        ("elasticsearch://es1/jobs?setup=perhaps", "setup is one of yes, no"),
        ("elasticsearch://es1/jobs?password=geheim", "no option 'password'"),
    ],
)
def test_bad_url_is_told_at_once(url, reason):
    with pytest.raises(BadSink, match=reason) as raised:
        open_sink(url)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("elasticsearch://es1/jobs?replicas=2", "elasticsearch://es1:9200/jobs"),
        ("elasticsearch://es1,es2:9201/jobs", "elasticsearch://es1:9200,es2:9201/jobs"),
        (
            "elasticsearch+https://[2001:db8::1]/jobs",
            "elasticsearch+https://[2001:db8::1]:9200/jobs",
        ),
    ],
)
def test_name_leaves_options_out(url, name):
    assert open_sink(url).name == name


@pytest.mark.parametrize(
    ("period", "index"),
    [
        ("", "jobs"),
        ("daily", "jobs-2026.11.20"),
        ("monthly", "jobs-2026.11.01"),
        ("yearly", "jobs-2026.01.01"),
    ],
)
def test_index_follows_from_the_time_of_submission(period, index):
    assert index_of(f"?period={period}").of(datetime(2026, 11, 20, 23, 59, tzinfo=UTC)) == index


def test_retention_is_what_the_youngest_job_gets():
    assert index_of("?period=monthly&retention=365").policy() == {
        "phases": {"delete": {"min_age": "396d", "actions": {"delete": {}}}}
    }
    settings = index_of("?period=monthly&retention=365").template()["template"]["settings"]
    assert settings == {
        "index": {"lifecycle": {"name": "opsportal-jobs", "parse_origination_date": True}}
    }


def test_policy_of_others_is_only_named():
    index = index_of("?ilm=keep-all&replicas=0")
    assert index.policy() is None
    assert index.template()["template"]["settings"] == {
        "index": {"number_of_replicas": 0, "lifecycle": {"name": "keep-all"}}
    }


def test_document_holds_the_bytes_once_where_they_are_text():
    job = a_job(
        script="é\0".encode(), environment=packed(b"A=1", b"A=2", b"B="), description=b"\xff"
    )
    shown = document(job)

    assert shown["script"] == "é\0"
    assert "script_base64" not in shown
    assert shown["environment"] == {"A": ["1", "2"], "B": ""}
    assert shown["description"] == "\N{REPLACEMENT CHARACTER}"
    assert job_of(shown) == job


def test_id_is_readable_and_that_of_the_key():
    assert document_id(a_job("12[3]")) == "alps:12[3]:20261120T235958.123456Z"


class Stub(ThreadingHTTPServer):
    """Speaks as Elasticsearch does, and remembers what it was asked."""

    product = "Elasticsearch"
    status = 200

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked = {}
        self.authorization = set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.server.asked[path] = body
        self.server.authorization.add(self.headers.get("Authorization"))
        answer = {"errors": False, "items": [], "acknowledged": True}
        if self.server.status != 200:
            answer = {
                "error": {"type": "security_exception", "reason": "who are you"},
                "status": self.server.status,
            }
        data = json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("X-Elastic-Product", self.server.product)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def stub():
    stub = Stub()
    yield stub
    stub.shutdown()
    stub.server_close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("certificate"), "IP:127.0.0.1")


@pytest.fixture
def https(stub, certificate):
    speak_tls(stub, certificate)
    return stub


def test_policy_and_template_are_made_before_the_first_job(stub):
    url = f"elasticsearch://127.0.0.1:{stub.server_port}/jobs?period=daily&retention=30"
    with closing(open_sink(url)) as sink:
        assert sink.write([a_job()]) == {}

    assert list(stub.asked)[:2] == [
        "/_ilm/policy/opsportal-jobs",
        "/_index_template/opsportal-jobs",
    ]
    assert (
        json.loads(stub.asked["/_ilm/policy/opsportal-jobs"])["policy"]
        == index_of("?period=daily&retention=30").policy()
    )
    template = json.loads(stub.asked["/_index_template/opsportal-jobs"])
    assert template["index_patterns"] == ["jobs-*"]
    assert template["template"]["aliases"] == {"jobs": {}}
    action, _ = stub.asked["/_bulk"].splitlines()
    assert json.loads(action)["index"]["_index"] == "jobs-2026.11.20"


def test_nothing_is_set_up_where_an_administrator_does_it(stub):
    with closing(open_sink(f"elasticsearch://127.0.0.1:{stub.server_port}/jobs?setup=no")) as sink:
        assert sink.write([a_job()]) == {}
    assert list(stub.asked) == ["/_nodes/http", "/_bulk"]


def test_key_and_authority_come_from_the_settings(https, certificate, settings):
    settings.ARCHIVE_ELASTICSEARCH_API_KEY = "a2V5OnNlY3JldA=="
    settings.ARCHIVE_ELASTICSEARCH_CA = certificate[0]
    with closing(open_sink(f"elasticsearch+https://127.0.0.1:{https.server_port}/jobs")) as sink:
        assert sink.write([a_job()]) == {}
    assert https.authorization == {"ApiKey a2V5OnNlY3JldA=="}


def test_user_and_password_come_from_the_settings(https, certificate, settings):
    settings.ARCHIVE_ELASTICSEARCH_USER = "archive"
    settings.ARCHIVE_ELASTICSEARCH_PASSWORD = "geheim"
    settings.ARCHIVE_ELASTICSEARCH_CA = certificate[0]
    with closing(open_sink(f"elasticsearch+https://127.0.0.1:{https.server_port}/jobs")) as sink:
        assert sink.write([a_job()]) == {}
    assert https.authorization == {"Basic " + base64.b64encode(b"archive:geheim").decode()}


def test_server_with_a_certificate_of_strangers_gets_no_key(https, settings):
    settings.ARCHIVE_ELASTICSEARCH_API_KEY = "geheim"
    with (
        closing(open_sink(f"elasticsearch+https://127.0.0.1:{https.server_port}/jobs")) as sink,
        pytest.raises(SinkUnavailable, match="certificate verify failed"),
    ):
        sink.write([a_job()])
    assert https.authorization == set()


@pytest.mark.parametrize("status", [401, 403])
def test_wrong_credentials_are_no_fault_of_the_jobs(stub, status):
    stub.status = status
    with (
        closing(open_sink(f"elasticsearch://127.0.0.1:{stub.server_port}/jobs")) as sink,
        pytest.raises(SinkUnavailable, match="security_exception: who are you"),
    ):
        sink.write([a_job()])


def test_something_else_on_the_port_is_told(stub):
    stub.product = "Teapot"
    with (
        closing(open_sink(f"elasticsearch://127.0.0.1:{stub.server_port}/jobs")) as sink,
        pytest.raises(SinkUnavailable, match="is not Elasticsearch"),
    ):
        sink.write([a_job()])


def test_the_other_host_is_asked_where_one_is_away(stub):
    with closing(
        open_sink(f"elasticsearch://127.0.0.1:1,127.0.0.1:{stub.server_port}/jobs")
    ) as sink:
        for number in range(4):
            assert sink.write([a_job(number)]) == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"API_KEY": "geheim", "USER": "ana", "PASSWORD": "geheim"}, "both set"),
        ({"USER": "ana"}, "belong together"),
        ({"PASSWORD": "geheim"}, "belong together"),
    ],
)
def test_credentials_that_do_not_fit_are_told_at_once(settings, changes, reason):
    for name, value in changes.items():
        setattr(settings, f"ARCHIVE_ELASTICSEARCH_{name}", value)
    with pytest.raises(BadSink, match=reason):
        open_sink("elasticsearch+https://es1/jobs")


def test_authority_that_is_not_there_is_told_at_once(settings, tmp_path):
    settings.ARCHIVE_ELASTICSEARCH_CA = tmp_path / "none.pem"
    with pytest.raises(BadSink, match=r"none.pem is not a file"):
        open_sink("elasticsearch+https://es1/jobs")


def test_secrets_are_never_sent_in_the_clear(settings):
    settings.ARCHIVE_ELASTICSEARCH_API_KEY = "geheim"
    with pytest.raises(BadSink, match="nothing is sent in the clear"):
        open_sink("elasticsearch://es1/jobs")
