"""The dashboard and the alerts, asked of a real Prometheus that scrapes a real portal."""

import json
import os
import re
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import yaml
from django.utils import timezone
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from apps.archive.models import SinkState
from apps.core.domain.health import beat_heart
from apps.jobs.models import Collection
from dev.processes import free_port
from tests.factories import clusters
from tests.factories.statusboard import service
from tests.programs.monitoring_servers import running, wait

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/opsportal.json").read_text())
EXPRESSIONS = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
ALERTS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((DEPLOY / "prometheus/opsportal-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}


def test_grafana_reads_all_of_the_dashboard():
    plugins.register_default_plugins()
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    assert list(lost(DASHBOARD, read, "")) == []


def lost(written, read, place):
    """Yield the places of what was written and is not read."""
    if isinstance(written, dict):
        for key, value in written.items():
            yield from lost(value, read.get(key), f"{place}.{key}")
    elif isinstance(written, list):
        for number, value in enumerate(written):
            yield from lost(value, read[number], f"{place}[{number}]")
    elif written != read:
        yield place


def test_panels_overlap_nowhere():
    cells = []
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["w"]):
            cells += [(place["x"] + x, place["y"] + y) for y in range(place["h"])]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.fixture
def busy_portal(settings, tmp_path, nova):
    """Make rows for each family of metrics."""
    at = timezone.now()
    beat_heart(name="beat", at=at)
    beat_heart(name="capture alps on ctl1", at=at, detail={"captured": 12, "missed": 1})
    service("samweb", at - timedelta(days=1))
    SinkState.objects.create(name="files")
    Collection.objects.create(cluster=clusters.cluster("alps", "slurm"), collected_until=at)
    settings.BACKUP_DIR = tmp_path / "dumps"
    settings.BACKUP_DIR.mkdir()
    (settings.BACKUP_DIR / "opsportal.dump").write_text("a dump")
    os.utime(settings.BACKUP_DIR / "opsportal.dump", (time.time() - 7200,) * 2)
    settings.METRICS_TOKEN = "right"


@pytest.fixture
def query(busy_portal, live_server, tmp_path):
    """Return a function that gives the values of an expression, by a Prometheus that scrapes."""
    token = tmp_path / "token"
    token.write_text("right")
    config = (DEPLOY / "prometheus/scrape.yml").read_text()
    for documented, here in (
        ("scheme: https", "scheme: http"),
        ("scrape_interval: 30s", "scrape_interval: 4s"),  # which is the longest a scrape may take
        ("/etc/prometheus/opsportal-metrics-token", str(token)),
        ("opsportal.example.org", live_server.url.removeprefix("http://")),
        ("- opsportal-alerts.yml", f"- {DEPLOY}/prometheus/opsportal-alerts.yml"),
    ):
        assert documented in config
        config = config.replace(documented, here)
    (tmp_path / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    prometheus = (
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'series'}",
        f"--web.listen-address={address}",
    )
    with (
        running(tmp_path / "prometheus.log", "prometheus", *prometheus),
        httpx.Client(base_url=f"http://{address}", trust_env=False) as client,
    ):

        def values_of(expression: str) -> list[float]:
            answer = client.get("/api/v1/query", params={"query": expression})
            answer.raise_for_status()  # 400 for a wrong expression, 503 while it starts
            return [float(series["value"][1]) for series in answer.json()["data"]["result"]]

        def has_scraped_twice() -> bool:
            with suppress(httpx.HTTPError):
                return values_of("count_over_time(opsportal_check_ok{check='beat'}[5m])") >= [2.0]
            return False

        wait(has_scraped_twice, "two scrapes")
        yield values_of


@pytest.mark.prometheus
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_each_panel_and_alert_has_series_of_a_portal(query):
    assert [name for name, expression in EXPRESSIONS.items() if not query(expression)] == []
    limit = re.compile(r" (>|==) [\d.]+( \* \d+)?")
    assert [
        name for name, expression in ALERTS.items() if not query(limit.sub("", expression))
    ] == []
    assert query(EXPRESSIONS["Portals that answer A"]) == [1.0]
    assert query(EXPRESSIONS["Services down A"]) == [0.0]
    assert 7200 <= query(EXPRESSIONS["Age of the newest dump A"])[0] < 7500
