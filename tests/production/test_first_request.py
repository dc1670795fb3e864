"""The first request of an experiment at a new site: its jobs may have taken no time,
and no page fails for it.
"""

import pytest
from django.urls import reverse

from apps.progress.domain.stored_forecasts import keep_forecasts
from tests.factories.history import history
from tests.factories.requests import LATER, S, content, draft, request_in, stage
from tests.production.checks.test_check_pages import NEW, NEW_CHECK, edit, post_of

PAGES = [
    "portal:request",
    "production:request-yaml",
    "production:request-changes",
    "progress:request-progress",
    "progress:request-report",
    "quality:request",
    "submission:request",
]


@pytest.fixture(params=[None, 0.0, 1.0], ids=["no jobs", "0 s", "1 s"])
def first_request(request, nova, liaison, approver):
    """A running request whose hundred jobs took so many seconds each, or that has none."""
    first = request_in(S.RUNNING, by=liaison, experiment=nova, approver=approver)
    if (seconds := request.param) is not None:
        total_seconds = 100 * seconds
        quantiles = [seconds] * 5
        history(
            first,
            core_seconds=total_seconds,
            completed_wall_seconds=total_seconds,
            wall_seconds=quantiles,
        )
    keep_forecasts(at=LATER)
    return first


@pytest.fixture
def second_request(first_request, nova, liaison):
    """A draft with a stage that has past jobs, perhaps, and one that has none."""
    return draft(
        liaison, nova, title="Second", stages=(stage("generation"), stage("reconstruction"))
    )


@pytest.mark.parametrize("role", ["liaison", "approver"])
def test_every_page_of_the_first_request_opens(first_request, request, browse, role):
    client = browse(request.getfixturevalue(role))
    statuses = {
        name: client.get(reverse(name, args=[first_request.key])).status_code for name in PAGES
    }
    assert statuses == dict.fromkeys(PAGES, 200)


def test_form_checks_and_estimate_of_the_next_request_work(second_request, liaison, browse):
    client = browse(liaison)
    typed = post_of(content(stages=(stage("reconstruction"),)), experiment="NOVA")
    answers = [
        client.get(NEW),
        client.post(NEW_CHECK, typed),
        client.get(edit(second_request)),
        client.get(reverse("portal:request", args=[second_request.key])),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4


def test_next_request_is_submitted_by_the_api(second_request, liaison, api):
    answer = api(liaison).post(f"/api/v1/requests/{second_request.key}/submit/", {}, format="json")
    assert answer.status_code == 200


def test_next_request_is_queued(first_request, nova, liaison, approver, browse):
    stages = (stage("generation"), stage("reconstruction"))
    queued = request_in(
        S.QUEUED, by=liaison, experiment=nova, approver=approver, title="Second", stages=stages
    )
    keep_forecasts(at=LATER)
    for page in ("portal:home", "production:queue", "production:inbox"):
        assert browse(approver).get(reverse(page)).status_code == 200
    assert browse(approver).get(reverse("portal:request", args=[queued.key])).status_code == 200
