"""The primary of Redis is killed, and Sentinel promotes its replica; all of it by TLS, too."""

import os
from contextlib import ExitStack, closing
from itertools import count

import pytest
from celery import Celery
from django.conf import settings
from django.core.cache import caches
from django.db import connection
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis import RedisError

from apps.core.domain import health
from apps.core.domain.events import publish
from apps.core.models import Delivery, Heartbeat
from apps.portal.pages.doctor.broker import check_broker
from opsportal.servers import broker_options, broker_tls, broker_url, redis_client
from tests.archive.workers import archive_worker
from tests.factories import people
from tests.failover.sentinel import Service
from tests.failover.waiting import wait_for
from tests.programs.certificates import self_signed
from tests.upgrade.databases import url_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("failover")]
#: The longest time without service, in seconds, on a machine that is busy with other tests.
LONGEST_OUTAGE = 30
SENDERS = count()


@pytest.fixture
def service(tmp_path_factory, settings):
    """A service that this process uses as the portal does."""
    with ExitStack() as stack:
        service = Service(stack, tmp_path_factory.mktemp("v"))
        settings.REDIS_URL = service.url
        own = settings.CACHES["default"]
        settings.CACHES = {"default": own | {"LOCATION": [service.url]}}
        yield service


@pytest.fixture
def broker(service):
    """A sender of tasks with the portal's settings."""
    with closing(sender(service.url)) as app:
        yield app


@pytest.fixture
def service_by_tls(tmp_path_factory):
    """A service that speaks TLS alone, by a certificate that only its own URL trusts."""
    with ExitStack() as stack:
        base = tmp_path_factory.mktemp("t")
        yield Service(stack, base, self_signed(base, "IP:127.0.0.1"))


def sender(url: str) -> Celery:
    # The application of the portal stays the current one, for the tasks of other tests.
    app = Celery("sender", set_as_current=False)
    app.conf.broker_url = broker_url(url)
    app.conf.broker_use_ssl = broker_tls(url)
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS | broker_options(url)
    # Pools are kept by URL and these options, whatever the options of TLS are.
    app.conf.broker_transport_options = options | {"sender": next(SENDERS)}
    return app


def is_stored(key: str) -> bool:
    try:
        caches["default"].set(key, "value", 60)
    except RedisError:
        return False
    return caches["default"].get(key) == "value"


def has_sent(broker: Celery, task: str) -> bool:
    """Send a task once, as beat does; return whether the queue has it."""
    try:
        broker.send_task(task, queue="default", retry=False)
    except OperationalError:
        return False
    return True


def test_cache_queue_and_worker_go_on_with_the_promoted_replica(
    service, broker, transactional_db, tmp_path
):
    environment = os.environ | {
        "DATABASE_URL": url_of(connection.settings_dict["NAME"]),
        "REDIS_URL": service.url,
        "VAR_DIR": str(tmp_path / "var"),
    }
    heart = Heartbeat.objects.filter(name=health.QUEUE)
    with archive_worker(environment, tmp_path, concurrency=1, queue="default"):
        assert is_stored("before")
        assert has_sent(broker, "core.beat_heart")
        wait_for(heart.exists)

        service.kill_primary()
        # Rows of work are stored. Nobody takes their messages: they go to the server of the tests.
        nova = people.nova()
        publish(kind="experiment.changed", target=nova, by="test", at=timezone.now())
        assert Delivery.objects.filter(delivered_at=None).exists()
        assert not has_sent(broker, "core.deliver_waiting")
        heart.delete()

        assert wait_for(lambda: is_stored("after")) < LONGEST_OUTAGE
        assert caches["default"].get("before") == "value"
        assert wait_for(lambda: has_sent(broker, "core.beat_heart")) < LONGEST_OUTAGE
        assert wait_for(heart.exists) < LONGEST_OUTAGE
        assert has_sent(broker, "core.deliver_waiting")
        wait_for(lambda: not Delivery.objects.filter(delivered_at=None).exists())
    with redis_client(service.url) as client:
        assert client.connection_pool.get_master_address() == ("127.0.0.1", service.replica_port)
    findings = {finding.check: finding.level for finding in check_broker(timezone.now())}
    assert findings["Redis"] == "ok"


@pytest.mark.redis
def test_cache_and_queue_go_on_by_tls_with_the_promoted_replica(service_by_tls):
    url = service_by_tls.url
    with redis_client(url) as client, closing(sender(url)) as broker:
        client.set("key", "before")
        assert has_sent(broker, "core.beat_heart")

        service_by_tls.kill_primary()

        wait_for(lambda: has_sent(broker, "core.beat_heart"))
        wait_for(lambda: answers(client))
        assert client.get("key") == b"before"


@pytest.mark.redis
def test_certificate_that_no_authority_has_signed_is_refused(service_by_tls):
    trusting = service_by_tls.url
    distrusting = trusting.partition("&ssl_ca_certs")[0]
    primary = f"rediss://:p%40ss%2Fword@127.0.0.1:{service_by_tls.primary_port}/2"
    authority = trusting.rpartition("&")[2]
    for url, is_trusted in {
        trusting: True,
        distrusting: False,
        f"{primary}?{authority}": True,
        primary: False,
        f"{primary.replace('127.0.0.1', '127.0.0.2')}?{authority}": False,
    }.items():
        with redis_client(url, retry=None) as client, closing(sender(url)) as broker:
            assert answers(client) == is_trusted
            assert has_sent(broker, "core.beat_heart") == is_trusted


def answers(client) -> bool:
    try:
        return client.ping()
    except RedisError:
        return False
