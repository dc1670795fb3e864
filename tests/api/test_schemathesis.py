"""Whatever a client sends, whoever it is: no 5xx,
and no answer that the schema does not tell of.
"""

import os

import pytest

from apps.production.domain.discussion import write_comment
from apps.production.domain.lineage.templates import save_template
from apps.production.enums import RequestState as S
from tests.api.schema_walk import Walk
from tests.factories.requests import AT, request_in

#: Cases of each operation, each as liaison and as one other. `SCHEMATHESIS_EXAMPLES=300` is a run
#: of hours.
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "2"))
SEED = int(os.environ.get("SCHEMATHESIS_SEED", "1"))
#: Only operations whose method and path hold this, such as `POST /api/v1/requests/`.
ONLY = os.environ.get("SCHEMATHESIS_ONLY", "")
STATES = (S.CHANGES_REQUESTED, S.AWAITING_APPROVAL, S.QUEUED, S.RUNNING, S.DATA_QUALITY, S.DONE)


@pytest.fixture
def places(world, nova, liaison, approver):
    """What is there to be found, by the beginning of the path."""
    requests = [
        request_in(state, by=liaison, experiment=nova, approver=approver) for state in STATES
    ]
    keys = [world.request.key, *(request.key for request in requests)]
    comment = write_comment(request=world.request, text="Why?", by=liaison, at=AT)
    template = save_template(request=world.request, name="Rock", by=liaison, at=AT)
    return {
        "/api/v1/archive/": {"id": [world.archived.pk]},
        "/api/v1/announcements/": {"id": [world.announcement.pk]},
        "/api/v1/windows/": {"id": [world.window.pk]},
        "/api/v1/incidents/": {"id": [world.incident.pk]},
        "/api/v1/services/": {"slug": [world.service.slug]},
        "/api/v1/workflow-types/": {"key": ["monte_carlo"]},
        "/api/v1/requests/{key}/comments/": {"key": [comment.request.key], "id": [comment.pk]},
        "/api/v1/requests/{key}/revisions/": {
            "key": keys[:1],
            "number": [world.request.revisions.first().pk],
        },
        "/api/v1/templates/": {"id": [template.pk]},
        "/api/v1/webhooks/": {"id": [world.webhook.pk]},
        "/api/v1/": {"key": keys, "number": [1], "id": [world.job.pk], "job": [world.job.pk]},
    }


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * EXAMPLES)
def test_api_keeps_to_its_schema(places, liaison, approver, shifter, admin):
    users = {
        "admin": admin,
        "liaison": liaison,
        "approver": approver,
        "shifter": shifter,
        "stranger": None,
    }
    walk = Walk(users=users, places=places, examples=EXAMPLES, seed=SEED).everywhere(ONLY)
    print(walk.calls, "calls:", dict(sorted(walk.answers.items())))
    assert not walk.problems, "\n\n".join(walk.problems.values())
