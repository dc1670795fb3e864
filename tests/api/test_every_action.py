"""Whatever a page about requests does, the API does too;
and every change over it can be made once.
"""

from django.db import transaction
from django.urls import reverse

from apps.core.api.operations import whole_schema
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from tests.routes import all_routes

ROUTES = all_routes()
NAMES = {route.name for route in ROUTES}
#: The parts of the portal that are about requests.
PARTS = (
    "production:",
    "portal:request",
    "submission:",
    "quality:",
    "notifications:",
    "datasets:",
)
#: By what route of the API the action of a page is done.
DONE_BY = {
    "datasets:make": "api:made-dataset-make",
    "datasets:stage": "api:staging-stage",
    "datasets:stage-ask": "api:staging-ask",
    "datasets:stage-cancel": "api:staging-cancel",
    "notifications:add-webhook": "api:webhook-list",
    "notifications:change-webhook": "api:webhook-detail",
    "notifications:feed-address": "api:feed-addresses",
    "notifications:read": "api:notification-read",
    "notifications:remove-watch": "api:line-watch-detail",
    "notifications:request": "api:request-follow",
    "notifications:settings": "api:notification-preferences",
    "portal:request-move": "api:request-submit",  # and one for each verb
    "portal:request-priority": "api:request-set-priority",
    "portal:request-reschedule": "api:request-reschedule",
    "production:check-new": "api:request-check",
    "production:check-typed": "api:request-check-saved",
    "production:comment": "api:comment-list",
    "production:comment-change": "api:comment-resolve",
    "production:comment-edit": "api:comment-detail",
    "production:delegation-revoke": "api:delegation-revoke",
    "production:desk-approve": "api:request-approve",
    "production:desk-decide": "api:request-approve",  # and one for each verb
    "production:hand-over": "api:delegation-list",
    "production:hold-lift": "api:hold-lift",
    "production:holds": "api:hold-list",
    "production:queue-move": "api:queue-move",
    "production:queue-priority": "api:request-set-priority",
    "production:queue-undo": "api:queue-undo-move",
    "production:request-clone": "api:request-clone",
    "production:request-combine": "api:request-combine",
    "production:request-edit": "api:request-detail",
    "production:request-import": "api:request-import-yaml",
    "production:request-new": "api:request-list",
    "production:request-split": "api:request-split",
    "production:shares": "api:shares",
    "production:signature-withdraw": "api:request-withdraw-signature",
    "production:template-delete": "api:template-detail",
    "production:template-make": "api:template-list",
    "production:template-rename": "api:template-detail",
    "quality:again": "api:quality-again",
    "quality:waive": "api:quality-waive",
    "quality:withdraw": "api:quality-withdraw-waiver",
    "submission:accept": "api:submission-accept",
    "submission:again": "api:submission-again",
    "submission:assign": "api:submission-assign",
    "submission:cancel": "api:submission-cancel",
    "submission:files-count": "api:files-count",
    "submission:files-give-up": "api:files-give-up",
    "submission:files-missing": "api:files-request-missing",
    "submission:files-take-back": "api:files-take-back",
    "submission:follow-advice": "api:submission-follow-advice",
    "submission:ignore-advice": "api:submission-ignore-advice",
    "submission:release": "api:submission-release",
    "submission:limit": "api:submission-limit",
    "submission:debug-run": "api:debug-run-list",
    "submission:retry": "api:submission-retry",
    "submission:retry-act": "api:retry-batch-cancel",
    "submission:retry-jobs": "api:retry-batch-list",
    "submission:wait-again": "api:submission-wait-again",
}
#: Tokens of machines alone: what they send twice makes nothing double.
WITHOUT_KEY = {
    "/api/v1/capture/batches/",
    "/api/v1/capture/report/",
    "/api/v1/job-files/",
    "/api/v1/job-logs/",
    "/api/v1/hosts/probe-results/",
    "/api/v1/phases/",
}


def test_every_action_of_a_page_has_a_route_of_the_api(world, client, liaison):
    client.force_login(liaison)
    pages = [
        route
        for route in ROUTES
        if route.name.startswith(PARTS) and "token" not in route.parameters
    ]
    actions = set()
    for route in pages:
        with transaction.atomic():
            url = reverse(route.name, kwargs=world.arguments(route.name, route.parameters))
            if client.post(url).status_code != 405:
                actions.add(route.name)
            transaction.set_rollback(True)
    assert len(actions) > 30
    assert {action for action in actions if DONE_BY.get(action) not in NAMES} == set()


def test_every_move_has_a_route_of_the_api():
    assert {f"api:request-{verb.value}" for verb in MOVE_FUNCTIONS} <= NAMES


def test_every_change_takes_a_key():
    without = {
        path
        for path, operations in whole_schema()["paths"].items()
        for method, operation in operations.items()
        if method in {"post", "put", "patch", "delete"}
        and "Idempotency-Key"
        not in {parameter["name"] for parameter in operation.get("parameters", ())}
    }
    assert without == WITHOUT_KEY
