"""Tokens of machines: each opens the routes of its own kind alone, and a user's session none."""

import pytest

from apps.accounts.models import ApiToken
from apps.archive.domain.capture_hosts import create_capture_host
from apps.hosts.domain.probes.tokens import new_probe_token
from apps.hosts.models import ProbeJob
from apps.jobs.domain.phases.tokens import issue_phase_token
from tests.factories import clusters

#: Route, the kind of token that it takes, and the realm of its 401.
ROUTES = [
    ("/api/v1/phases/", "job", "phases"),
    ("/api/v1/job-files/", "job", "phases"),
    ("/api/v1/job-logs/", "job", "phases"),
    ("/api/v1/hosts/probe-results/", "probe job", "probes"),
    ("/api/v1/capture/report/", "capture host", "capture"),
    ("/api/v1/capture/batches/", "capture host", "capture"),
]


@pytest.fixture
def tokens(db, at, liaison, nova, time_machine):
    time_machine.move_to(at)
    _, capture_token = create_capture_host(name="scheduler-1", clusters=["alps"], by="test", at=at)
    phase_token = issue_phase_token(
        user=liaison,
        cluster_id=clusters.cluster().pk,
        experiment_id=nova.pk,
        request_key="",
        stage="",
        at=at,
    )
    _, user_token = ApiToken.objects.create(user=liaison)
    return {
        "job": phase_token,
        "probe job": new_probe_token(ProbeJob(name="probe-1")),
        "capture host": capture_token,
        "user": user_token,
    }


@pytest.mark.parametrize(("path", "kind", "realm"), ROUTES)
def test_route_takes_the_tokens_of_one_kind(client, tokens, liaison, path, kind, realm):
    challenge = f'Bearer realm="{realm}"'
    client.force_login(liaison)
    answer = client.post(path, b"", content_type="text/plain")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, challenge)

    taken = []
    for name, token in tokens.items():
        headers = {"authorization": f"Bearer {token}"}
        answer = client.post(path, b"", content_type="text/plain", headers=headers)
        if answer.status_code != 401:
            taken.append(name)
        else:
            assert answer.headers["WWW-Authenticate"] == challenge
    assert taken == [kind]
