"""A server of Elasticsearch that speaks TLS alone, and only with an API key.

Its own security is not among the jars that can be fetched; so nginx stands before it and asks for
both, as at sites that publish it through a proxy.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from apps.accounts.models import User
from apps.archive.sinks.base import SinkUnavailable
from apps.archive.sinks.registry import open_sink
from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.query.parser import parse
from dev.processes import free_port, guard, spawn
from tests.contracts.sink import a_job
from tests.failover.waiting import wait_for
from tests.programs.certificates import self_signed
from tests.programs.elasticsearch_server import ElasticsearchServer
from tests.search.elasticsearch_engine import RefreshedEngine
from tests.search.engine_contract import AT, found
from tests.search.kept_logs import job, keep_log

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.elasticsearch,
    pytest.mark.nginx,
    pytest.mark.xdist_group("elasticsearch"),
]
KEY = "a2V5OnNlY3JldA=="
CONFIGURATION = """
pid {directory}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        location / {{
            if ($http_authorization != "ApiKey {api_key}") {{ return 401; }}
            proxy_pass http://{server};
        }}
    }}
}}
"""


@pytest.fixture
def address(elasticsearch: ElasticsearchServer, tmp_path, settings) -> Iterator[str]:
    """Where the server is reached by TLS; the settings have its authority and its key."""
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if nginx is None:
        pytest.skip("no nginx here")
    elasticsearch.start()
    port = free_port()
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    file = tmp_path / "nginx.conf"
    file.write_text(
        CONFIGURATION.format(
            directory=tmp_path,
            port=port,
            certificate=certificate,
            key=key,
            api_key=KEY,
            server=elasticsearch.host,
        )
    )
    settings.ARCHIVE_ELASTICSEARCH_API_KEY = KEY
    settings.ARCHIVE_ELASTICSEARCH_CA = certificate
    run = tmp_path / "run"
    run.mkdir()
    watchdog = guard(run)
    command = [nginx, "-e", str(tmp_path / "errors.log"), "-g", "daemon off;"]
    spawn("nginx", [*command, "-p", str(tmp_path), "-c", str(file)], run)
    try:
        wait_for(lambda: is_open(port))
        yield f"127.0.0.1:{port}"
    finally:
        watchdog.communicate(timeout=60)
        elasticsearch.clear()


def is_open(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_search_and_archive_use_key_and_authority(
    address, elasticsearch: ElasticsearchServer, shifter: User, settings
) -> None:
    engine = RefreshedEngine.from_url(f"elasticsearch+https://{address}/site?replicas=0")
    keep_log(job(1, at=AT), b"a word", engine=engine)
    assert len(found(engine, parse("word"), shifter)) == 1
    with closing(open_sink(f"elasticsearch+https://{address}/jobs")) as sink:
        assert sink.write([a_job()]) == {}
    assert len(elasticsearch.documents("jobs")) == 1

    settings.ARCHIVE_ELASTICSEARCH_API_KEY = "d3Jvbmc="
    engine = RefreshedEngine.from_url(f"elasticsearch+https://{address}/site?replicas=0")
    with pytest.raises(SearchUnavailable, match="credentials") as raised:
        found(engine, parse("word"), shifter)
    assert "401" in raised.value.reason
    with (
        closing(open_sink(f"elasticsearch+https://{address}/jobs")) as sink,
        pytest.raises(SinkUnavailable, match="401"),
    ):
        sink.write([a_job()])


def test_server_of_an_unknown_authority_is_not_asked(address, shifter: User, settings) -> None:
    settings.ARCHIVE_ELASTICSEARCH_CA = None
    engine = RefreshedEngine.from_url(f"elasticsearch+https://{address}/site?replicas=0")
    with pytest.raises(SearchUnavailable, match="certificate"):
        keep_log(job(1, at=AT), b"a word", engine=engine)
    with (
        closing(open_sink(f"elasticsearch+https://{address}/jobs")) as sink,
        pytest.raises(SinkUnavailable, match="certificate"),
    ):
        sink.write([a_job()])
