"""What SEARCH_URL and the settings beside it mean, without a server."""

import elasticsearch
import pytest

from apps.accounts.models import User
from apps.search.domain.engine import chosen
from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.engine.elasticsearch.engine import ElasticsearchEngine
from apps.search.domain.engine.elasticsearch.target import Target
from apps.search.domain.logs.index_state import serving_index
from apps.search.domain.query.parser import parse
from tests.search.engine_contract import AT, found
from tests.search.kept_logs import job, keep_log

pytestmark = pytest.mark.django_db


def test_name_and_settings_follow_from_the_url() -> None:
    target = Target.from_url("elasticsearch://es1,es2:9201/site?shards=3&replicas=2")
    assert target.name == "elasticsearch://es1:9200,es2:9201/site"
    assert target.settings() == {
        "number_of_shards": 3,
        "number_of_replicas": 2,
        "sort": {"field": ["ended_at", "job"], "order": ["desc", "desc"]},
    }
    assert target.part_of("site-logs-g12-2026.11") == (12, "2026.11")
    assert target.part_of("site-logs-g1-2026.11-old") is None
    assert target.part_of("other-logs-g1-2026.11") is None


def test_the_client_gets_api_key_and_certificate(settings, monkeypatch, tmp_path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    settings.ARCHIVE_ELASTICSEARCH_API_KEY = "a2V5"
    settings.ARCHIVE_ELASTICSEARCH_CA = authority
    built = {}

    def client(hosts, **options):
        built.update(options, hosts=hosts)

    monkeypatch.setattr(elasticsearch, "Elasticsearch", client)
    Target.from_url("elasticsearch+https://es1,es2/site").connection.client()
    assert built["hosts"] == ["https://es1:9200", "https://es2:9200"]
    assert built["api_key"] == "a2V5"
    assert built["ca_certs"] == str(authority)
    assert built["max_retries"] == 1
    with pytest.raises(SearchUnavailable, match="nothing is sent in the clear"):
        ElasticsearchEngine.from_url("elasticsearch://es1/site")


def test_a_server_that_is_away_is_an_error_but_scripts_are_searched(shifter: User) -> None:
    engine = ElasticsearchEngine.from_url("elasticsearch://127.0.0.1:9/site")
    assert found(engine, parse("text in:script"), shifter) == []
    with pytest.raises(SearchUnavailable, match="does not answer"):
        keep_log(job(1, at=AT), b"text", engine=engine)
    index = serving_index(engine.name)
    index.months = ["2026.11"]
    index.save()
    with pytest.raises(SearchUnavailable, match="in:script"):
        found(engine, parse("text"), shifter)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://es1/site", "scheme is one of"),
        ("elasticsearch:///site", "names no host"),
        ("elasticsearch://es1/", "is not a prefix"),
        ("elasticsearch://es1/site?period=daily", "no option 'period'"),
        ("elasticsearch://me:secret@es1/site", "contains a user"),
    ],
)
def test_a_bad_url_is_named_on_the_health_page(url, reason, settings, browse, shifter) -> None:
    settings.SEARCH_URL = url
    with pytest.raises(SearchUnavailable, match=reason):
        chosen.engine_in_use()
    page = browse(shifter).get("/health/").content.decode()
    assert "SEARCH_URL: " in page
    assert "secret" not in page
