"""Every route of the project, as every role and as a stranger: who gets in, who is refused,
who is told of nothing.

A route without an expectation here fails.
"""

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
import time_machine
from django.db import connection, transaction
from django.test import Client
from django.urls import resolve, reverse

from apps.archive.models import ArchivedJob
from apps.core.api.operations import json_schema, operations, path_of, resolved
from apps.core.domain.hidden_characters import HIDDEN
from apps.jobs.models import Job
from apps.notifications.models import Webhook
from apps.production.domain.discussion import write_comment
from apps.production.domain.lineage.templates import save_template
from apps.production.models import Hold, Request
from tests.factories import people
from tests.factories.hidden_characters import append_hidden_characters
from tests.factories.requests import AT
from tests.parameters import count_reads, reads_parameters
from tests.recorded import compare_with_recorded
from tests.routes import Route, all_routes

ROLES = ("nobody", "liaison", "other liaison", "approver", "shifter", "admin")

# What each role gets, in the order of ROLES: y in, n refused (403), h hidden (404).
ALL = "yyyyyy"
OF_EXPERIMENT = "hyhyyy"  # of NOvA's people and the OPG
OPG = "nnnyyy"
REQUESTER = "hyhnnn"
OPG_APPROVER = "hnhynn"
OPERATOR = "hnhyyn"
EITHER = "hyhynn"
DECIDER_ON_FILES = "hyhyyn"
PROPOSER = "nyyyyy"
APPROVER_OR_ADMIN = "nnnyny"
APPROVER_OR_ADMIN_OF_EXPERIMENT = "hnhyny"
APPROVER_OR_ADMIN_HIDDEN = "nnnhnh"  # there is none
NONE = "hhhhhh"

PUBLIC = {
    "accounts:forgotten-password",
    "accounts:login",
    "api:index",
    "api:schema",
    "api:version",
    "core:healthz",
    "core:readyz",
}
#: They answer 404 unless a setting turns them on.
OFF = {
    "accounts:openid",
    "accounts:openid-callback",
    "accounts:openid-logout",
    "core:styleguide",
}
#: Guarded by a token of its own, whoever asks.
BY_TOKEN = {
    "accounts:new-password",
    "api:capture-batches",
    "api:capture-report",
    "api:feed",
    "api:job-files",
    "api:job-logs",
    "api:phases",
    "api:probe-results",
    "notifications:feed-experiment",
    "notifications:feed-inbox",
    "notifications:feed-request",
    "portal:search-feed",
}

EXPECTED = {
    "accounts:change-password": ALL,
    "accounts:create-token": ALL,
    "accounts:logout": ALL,
    "accounts:revoke-token": NONE,  # the token of the address is nobody's
    "accounts:settings": ALL,
    "core:help": ALL,
    "core:help-contents": ALL,
    "accounts:view-change": NONE,  # there is none yet
    "accounts:view-save": ALL,
    "api:advice": ALL,
    "api:announcement-detail": ALL,
    "api:announcement-list": ALL,
    "api:announcement-pin": OPG,
    "api:announcement-read": ALL,
    "api:announcement-withdraw": OPG,
    "api:archived-job-description": NONE,  # the scheduler of this one keeps none
    "api:archived-job-detail": OF_EXPERIMENT,
    "api:archived-job-diff": NONE,  # there is no other job
    "api:archived-job-environment": OF_EXPERIMENT,
    "api:archived-job-list": ALL,
    "api:archived-job-pin": OF_EXPERIMENT,
    "api:archived-job-script": OF_EXPERIMENT,
    "api:archived-job-tar": ALL,
    "api:archived-job-undo-choice": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "api:archived-job-unpin": OF_EXPERIMENT,
    # and then told that no capture differs
    "api:archived-job-use-capture": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "api:campaigns": ALL,
    "api:causes": ALL,
    "api:line-watch-detail": ALL,  # it is only removed, and looked up then
    "api:line-watch-list": ALL,
    "api:new-lines": ALL,
    "api:where-else": ALL,
    "api:claim-accept": OPERATOR,
    "api:claim-detail": OF_EXPERIMENT,
    "api:claim-withdraw": OPERATOR,
    "api:comment-detail": NONE,  # there is none of this number
    "api:comment-list": OF_EXPERIMENT,
    "api:comment-reopen": NONE,
    "api:comment-resolve": NONE,
    "api:comment-withdraw": NONE,
    "api:feed-addresses": ALL,
    "api:hand-over-note-list": OPG,
    "api:hold-detail": OF_EXPERIMENT,
    "api:hold-lift": OPERATOR,
    "api:hold-list": ALL,
    "api:incident-close": OPG,
    "api:incident-detail": ALL,
    "api:incident-divide": OPG,
    "api:incident-impact": ALL,
    "api:incident-list": ALL,
    "api:job-detail": OF_EXPERIMENT,
    "api:job-history-detail": NONE,  # no month is archived
    "api:job-history-list": ALL,
    "api:job-list": ALL,
    "api:job-records": OPG,
    "api:phase-tokens": ALL,
    "api:job-log": OF_EXPERIMENT,
    "api:progress-detail": OF_EXPERIMENT,
    "api:weekly-report-list": ALL,
    "api:weekly-report-detail": OF_EXPERIMENT,
    "api:weekly-report-all-experiments": ALL,  # and says that the week is missing
    "api:weekly-report-campaign": ALL,
    "api:quality-again": "hyhyyn",
    "api:quality-detail": OF_EXPERIMENT,
    "api:quality-files": "hyhyyn",
    "api:quality-histograms": OF_EXPERIMENT,
    "api:quality-results": "hyhyyn",
    "api:quality-waive": OPG_APPROVER,
    "api:quality-withdraw-waiver": OPG_APPROVER,
    "api:host-exclusion-detail": ALL,
    "api:host-exclusion-extend": OPG,
    "api:host-exclusion-list": ALL,
    "api:host-exclusion-return-host": OPG,
    "api:host-history-list": ALL,
    "api:recovery-decision-detail": OF_EXPERIMENT,
    "api:recovery-decision-list": ALL,
    "api:recovery-rule-change": OPG,
    "api:recovery-rule-detail": ALL,
    "api:recovery-rule-list": ALL,
    "api:recovery-rule-switch": OPG,
    "api:request-report-detail": OF_EXPERIMENT,
    "api:queue-detail": NONE,  # a draft has no score
    "api:queue-list": ALL,
    "api:queue-move": OPG_APPROVER,
    "api:queue-undo-move": OPG_APPROVER,
    "api:queue-what-if": NONE,
    "api:saved-view-detail": NONE,  # there is none yet
    "api:saved-view-list": ALL,
    "api:shares": OPG,
    "api:shares-what-if": OPG,
    "api:reference": ALL,
    "api:request-approve": OPG_APPROVER,
    "api:request-request-changes": OPG_APPROVER,
    "api:request-detail": OF_EXPERIMENT,
    "api:delegation-detail": NONE,  # of nobody here
    "api:delegation-list": ALL,
    "api:delegation-revoke": NONE,
    "api:inbox-list": ALL,
    "api:request-complete": OPERATOR,
    "api:request-combine": REQUESTER,
    "api:request-done": OPERATOR,
    "api:request-done-partial": OPERATOR,
    "api:request-review": OPERATOR,
    "api:request-fail-test": OPERATOR,
    "api:request-hold": OPERATOR,
    "api:request-release": OPERATOR,
    "api:request-related": OF_EXPERIMENT,
    "api:request-resume": OPERATOR,
    "api:request-return-to-queue": OPERATOR,
    "api:request-split": REQUESTER,
    "api:request-start": OPERATOR,
    "api:request-test": OPERATOR,
    "api:request-cancel": REQUESTER,  # a draft is the liaison's alone
    "api:request-supersede": REQUESTER,
    "api:measured-state-list": ALL,
    "api:notification-list": ALL,
    "api:notification-preferences": ALL,
    "api:notification-read": ALL,
    "api:request-changes": OF_EXPERIMENT,
    "api:request-check": ALL,
    "api:request-check-saved": OF_EXPERIMENT,
    "api:request-clone": REQUESTER,
    "api:request-events": OF_EXPERIMENT,
    "api:request-follow": OF_EXPERIMENT,
    "api:request-next-names": REQUESTER,  # and then told that it is no clone
    "api:request-revision": NONE,  # there is none of this number
    "api:request-revisions": OF_EXPERIMENT,
    "api:rules": ALL,
    "api:request-estimate": ALL,
    "api:request-import-yaml": "nyynnn",  # and then for the experiment that the text names
    "api:request-list": ALL,
    "api:request-reject": OPG_APPROVER,
    "api:request-reopen": OPG_APPROVER,
    "api:request-reschedule": REQUESTER,
    "api:request-set-priority": OPG_APPROVER,
    "api:request-signatures": OF_EXPERIMENT,
    "api:request-submit": REQUESTER,
    # and then told that there is no such signature
    "api:request-withdraw-signature": OF_EXPERIMENT,
    "api:request-yaml": OF_EXPERIMENT,
    "api:service-detail": ALL,
    "api:service-history": ALL,
    "api:service-list": ALL,
    "api:stage-located": "hyhyyn",
    "api:stage-outputs": "hyhyyn",
    "api:search": ALL,
    "api:statistics": ALL,
    "api:submission-accept": OPERATOR,
    "api:submission-wait-again": OPERATOR,
    "api:submission-again": OPERATOR,  # and then asked which
    "api:submission-assign": OPERATOR,
    "api:submission-bundle": OPERATOR,
    "api:submission-cancel": OPERATOR,
    "api:submission-detail": OF_EXPERIMENT,
    "api:submission-follow-advice": OPERATOR,
    "api:submission-ignore-advice": OPERATOR,
    "api:submission-limit": OPERATOR,
    "api:submission-release": OPERATOR,
    "api:submission-retry": OPERATOR,
    "api:submission-scouts": OF_EXPERIMENT,
    "api:template-detail": NONE,  # there is none yet
    "api:template-list": ALL,
    "api:template-make-draft": NONE,
    "api:failure-group-assign": OF_EXPERIMENT,
    "api:failure-group-detail": OF_EXPERIMENT,
    "api:failure-group-list": ALL,
    "api:failure-group-notes": OF_EXPERIMENT,
    "api:failure-group-status": OF_EXPERIMENT,
    "api:failure-group-unmute": OF_EXPERIMENT,  # and then told that it is not muted
    "api:dataset-list": ALL,
    "api:dataset-provenance": NONE,  # the address has no name
    "api:debug-run-detail": NONE,
    "api:debug-run-list": ALL,
    "api:retry-batch-bundle": ALL,  # and then asked for what
    "api:retry-batch-cancel": NONE,  # there is no batch
    "api:retry-batch-detail": NONE,
    "api:retry-batch-dry-run": ALL,  # and then asked for what
    "api:retry-batch-list": ALL,
    "api:retry-batch-resume": NONE,
    "api:change-of-known-error-approve": APPROVER_OR_ADMIN,
    "api:change-of-known-error-detail": ALL,
    "api:change-of-known-error-list": ALL,
    "api:change-of-known-error-reject": APPROVER_OR_ADMIN,
    "api:experiment-pack-approve": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "api:experiment-pack-check": PROPOSER,
    "api:experiment-pack-detail": OF_EXPERIMENT,
    "api:experiment-pack-list": ALL,
    "api:experiment-pack-reject": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "api:known-error-change": PROPOSER,
    "api:known-error-detail": ALL,
    "api:known-error-export": ALL,
    "api:known-error-import": PROPOSER,
    "api:known-error-list": ALL,
    "api:verdict-correct": OF_EXPERIMENT,
    "api:verdict-detail": OF_EXPERIMENT,
    "api:verdict-harvest-again": OF_EXPERIMENT,
    "api:verdict-list": ALL,
    "api:webhook-detail": "hhhyyy",  # an experiment's
    "api:webhook-enable": "hhhyyy",
    "api:webhook-new-secret": "hhhyyy",
    "api:webhook-list": ALL,
    "api:workflow-type-detail": ALL,
    "api:workflow-type-list": ALL,
    "api:window-cancel": OPG,
    "api:window-detail": ALL,
    "api:window-list": ALL,
    "archive:compare": ALL,
    "archive:description": NONE,  # the scheduler of this one keeps none
    "archive:diff": OF_EXPERIMENT,
    "archive:environment": OF_EXPERIMENT,
    "archive:job": OF_EXPERIMENT,
    "archive:jobs": ALL,
    "archive:line": OF_EXPERIMENT,
    "archive:pin": OF_EXPERIMENT,
    "archive:script": OF_EXPERIMENT,
    "archive:tar": ALL,
    "archive:undo-choice": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "archive:unpin": OF_EXPERIMENT,
    "archive:use-capture": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "datasets:dataset": NONE,  # the address has no name
    "datasets:list": ALL,
    "datasets:make": REQUESTER,  # a draft; later approvers, too
    "datasets:stage": DECIDER_ON_FILES,
    "datasets:stage-ask": "hhhhhn",  # nothing is staged
    "datasets:stage-cancel": "hhhhhn",
    "diagnosis:act-on-group": OF_EXPERIMENT,
    "diagnosis:act-on-groups": ALL,
    "diagnosis:causes": ALL,
    "diagnosis:line": OF_EXPERIMENT,
    "diagnosis:new-lines": ALL,
    "diagnosis:template": OF_EXPERIMENT,
    "diagnosis:watch-line": ALL,
    "diagnosis:where-else": ALL,
    "diagnosis:compare-logs": OF_EXPERIMENT,
    "diagnosis:correct-verdict": OF_EXPERIMENT,
    "diagnosis:exit-codes": ALL,
    "diagnosis:failed-jobs": ALL,
    "diagnosis:failures": ALL,
    "diagnosis:group": OF_EXPERIMENT,
    "diagnosis:harvest-again": OF_EXPERIMENT,
    "diagnosis:decide-known-error": APPROVER_OR_ADMIN,
    "diagnosis:decide-pack": APPROVER_OR_ADMIN_OF_EXPERIMENT,
    "diagnosis:pack": OF_EXPERIMENT,
    "diagnosis:packs": ALL,
    "diagnosis:known-error": ALL,
    "diagnosis:known-error-change": ALL,
    "diagnosis:known-error-edit": PROPOSER,
    "diagnosis:known-error-new": PROPOSER,
    "diagnosis:known-errors": ALL,
    "diagnosis:known-errors-export": ALL,
    "diagnosis:known-errors-import": PROPOSER,
    "diagnosis:running-log": OF_EXPERIMENT,
    "diagnosis:reclassification": APPROVER_OR_ADMIN_HIDDEN,
    "diagnosis:reclassifications": APPROVER_OR_ADMIN,
    "diagnosis:log": OF_EXPERIMENT,
    "diagnosis:raw-log": OF_EXPERIMENT,
    "diagnosis:open-running-log": ALL,
    "diagnosis:slice-groups": OF_EXPERIMENT,
    "diagnosis:verdict": OF_EXPERIMENT,
    "hosts:exclude": OPG,
    "hosts:exclusion": ALL,
    "hosts:exclusions": ALL,
    "hosts:extend": OPG,
    "hosts:history": ALL,
    "hosts:of-host": ALL,
    "hosts:probes": ALL,
    "hosts:return": OPG,
    "jobs:accept-claims": OPERATOR,
    "jobs:archived": ALL,
    "jobs:claims": OF_EXPERIMENT,
    "jobs:flagged": OPG,
    "jobs:host": OF_EXPERIMENT,
    "jobs:host-rate": ALL,
    "jobs:list": ALL,
    "jobs:site": NONE,  # the job has no site
    "jobs:statistics": ALL,
    "jobs:user": OF_EXPERIMENT,
    "jobs:withdraw-claims": OPERATOR,
    "notifications:add-webhook": ALL,
    "notifications:change-webhook": "hhhyyy",  # an experiment's
    "notifications:feed-address": ALL,
    "notifications:list": ALL,
    "notifications:open": NONE,  # of nobody here
    "notifications:read": ALL,
    "notifications:remove-watch": NONE,  # nobody here watches a line
    "notifications:request": OF_EXPERIMENT,
    "notifications:settings": ALL,
    "portal:incident": ALL,
    "portal:incident-act": OPG,
    "portal:find": ALL,
    "portal:text-search": ALL,
    "portal:health": OPG,
    "portal:storage": OPG,
    "portal:hand-over": OPG,
    "portal:home": ALL,
    "portal:job": OF_EXPERIMENT,
    "portal:live-jobs": ALL,
    "portal:metrics": OPG,
    "portal:notify-experiment": OPG,
    "portal:request": OF_EXPERIMENT,
    "portal:request-move": REQUESTER,
    "portal:request-priority": OPG_APPROVER,
    "portal:request-reschedule": REQUESTER,
    "production:check-new": "nyynnn",
    "production:check-typed": REQUESTER,
    "production:comment": OF_EXPERIMENT,
    "production:comment-change": NONE,  # it does nothing called “submit”
    "production:comment-edit": NONE,  # it is somebody else's, or nobody's
    "production:hold-lift": OPERATOR,
    "production:holds": ALL,
    "jobs:phases": ALL,
    "production:delegation-revoke": NONE,
    "production:desk": ALL,
    "production:desk-approve": ALL,
    "production:desk-decide": OPG_APPROVER,
    "production:hand-over": ALL,
    "production:inbox": ALL,
    "production:known": ALL,
    "production:campaigns": ALL,
    "production:queue": ALL,
    "production:queue-move": OPG_APPROVER,
    "production:queue-priority": OPG_APPROVER,
    "production:queue-undo": OPG_APPROVER,
    "production:shares": OPG,
    "production:request-changes": OF_EXPERIMENT,
    "production:request-clone": REQUESTER,
    "production:request-combine": REQUESTER,
    "production:request-edit": REQUESTER,
    "production:request-import": "nyynnn",
    "production:request-list": ALL,
    "production:request-new": "nyynnn",
    "production:request-split": REQUESTER,
    "production:request-start": "nyynnn",
    "production:rules": ALL,
    "production:signature-withdraw": OF_EXPERIMENT,
    "production:template-delete": NONE,  # there is none
    "production:template-make": OF_EXPERIMENT,
    "production:template-rename": NONE,
    "production:templates": ALL,
    "production:workflow": ALL,
    "production:workflows": ALL,
    "progress:frozen-report": NONE,  # none of that hash
    "progress:weekly-reports": ALL,
    "progress:weekly-report": OF_EXPERIMENT,
    "progress:week-of-all": OF_EXPERIMENT,
    "progress:week-of-campaign": OF_EXPERIMENT,
    "progress:request-progress": OF_EXPERIMENT,
    "progress:request-report": OF_EXPERIMENT,
    "quality:again": "hyhyyn",
    "quality:request": OF_EXPERIMENT,
    "quality:waiting": ALL,
    "quality:waive": OPG_APPROVER,
    "quality:withdraw": OPG_APPROVER,
    "submission:again": "hnhhhn",  # nothing was sent of this one
    "submission:accept": OPERATOR,
    "submission:assign": OPERATOR,
    "submission:bundle": OPERATOR,
    "submission:cancel": OPERATOR,
    "submission:debug-bundle": OF_EXPERIMENT,  # and says why there is none
    "submission:debug-run": OF_EXPERIMENT,
    "api:files-count": DECIDER_ON_FILES,
    "api:made-dataset-detail": OF_EXPERIMENT,
    "api:made-dataset-make": REQUESTER,  # a draft; later approvers, too
    "api:staging-ask": DECIDER_ON_FILES,  # and says that nothing is staged
    "api:staging-cancel": DECIDER_ON_FILES,
    "api:staging-detail": OF_EXPERIMENT,
    "api:staging-stage": DECIDER_ON_FILES,
    "api:files-detail": OF_EXPERIMENT,
    "api:files-give-up": DECIDER_ON_FILES,
    "api:files-inputs": OF_EXPERIMENT,
    "api:files-outputs": OF_EXPERIMENT,
    "api:files-request-missing": REQUESTER,  # a draft; later approvers, too
    "api:files-take-back": DECIDER_ON_FILES,
    "submission:file-list": OF_EXPERIMENT,
    "submission:files": OF_EXPERIMENT,
    "submission:files-count": DECIDER_ON_FILES,
    "submission:files-download": OF_EXPERIMENT,
    "submission:files-give-up": DECIDER_ON_FILES,
    "submission:files-missing": REQUESTER,  # a draft; later approvers, too
    "submission:files-take-back": DECIDER_ON_FILES,
    "submission:output-list": OF_EXPERIMENT,
    "submission:follow-advice": OPERATOR,
    "submission:ignore-advice": OPERATOR,
    "submission:limit": OPERATOR,
    "submission:release": "hnhhhn",  # nothing was sent of this one
    "submission:request": OF_EXPERIMENT,
    "recovery:all-decisions": ALL,
    "recovery:answer": OF_EXPERIMENT,
    "recovery:decisions": ALL,
    "recovery:edit": OPG,
    "recovery:export": OF_EXPERIMENT,
    "recovery:job": OF_EXPERIMENT,
    "recovery:mode": OPG,
    "recovery:move": OPG,
    "recovery:new": OPG,
    "recovery:owner": OF_EXPERIMENT,
    "recovery:owner-bundle": OF_EXPERIMENT,
    "recovery:questions": ALL,
    "recovery:rule": ALL,
    "recovery:rules": ALL,
    "recovery:week": ALL,
    "submission:retry": OPERATOR,
    "submission:retry-act": NONE,  # there is no batch
    "submission:retry-batch": NONE,
    "submission:retry-batches": ALL,
    "submission:retry-jobs": OF_EXPERIMENT,
    "submission:script": NONE,
    "submission:wait-again": OPERATOR,
    "production:request-yaml": OF_EXPERIMENT,
    "statusboard:board": ALL,
    "statusboard:cancel-window": OPG,
    "statusboard:map-alert": OPG,
    "statusboard:pin-announcement": OPG,
    "statusboard:post-announcement": OPG,
    "statusboard:read-announcement": ALL,
    "statusboard:report-incident": OPG,
    "statusboard:iri-event": NONE,  # the world has no such key
    "statusboard:iri-events": ALL,
    "statusboard:iri-incident": NONE,
    "statusboard:iri-incidents": ALL,
    "statusboard:iri-resource": NONE,
    "statusboard:iri-resources": ALL,
    "statusboard:public-board": ALL,
    "statusboard:schedule-window": OPG,
    "portal:service": ALL,
    "statusboard:calendar": ALL,
    "statusboard:source": OPG,
    "statusboard:source-mapping": "nnnhhh",  # the world has no source of JSON
    "statusboard:source-new": OPG,
    "statusboard:source-token": OPG,
    "statusboard:sources": ALL,
    "statusboard:status-badge": ALL,
    "statusboard:status-calendar": ALL,
    "statusboard:status-feed": ALL,
    "statusboard:status-summary": ALL,
    "statusboard:withdraw-announcement": OPG,
}

ROUTES = all_routes()
#: Enough for every route that wants some.
DATA = {
    "reason": "because",
    "priority": 5,
    "verdict": "code",
    "days": 30,
    "text": "more",
    "state": "down",
}
DATA |= {"to_rank": 1, "weights": {"NOVA": 1}}


@pytest.fixture
def who(liaison, other_liaison, approver, shifter, admin):
    everybody = (people.person("nobody"), liaison, other_liaison, approver, shifter, admin)
    return dict(zip(ROLES, everybody, strict=True))


def post_and_undo(client, url: str):
    """POST what the route knows of DATA, and change nothing."""
    operation = operations().get((path_of(resolve(url).route), "post"))
    known = DATA if operation is None else resolved(json_schema(operation)).get("properties", DATA)
    as_json = {"content_type": "application/json"} if url.startswith("/api/") else {}
    with transaction.atomic():
        response = client.post(
            url, {name: value for name, value in DATA.items() if name in known}, **as_json
        )
        transaction.set_rollback(True)
    return response


def address(world, route: Route) -> str:
    return reverse(route.name, kwargs=world.arguments(route.name, route.parameters))


#: Texts of NOvA, by where they are planted; whoever has no role there must never be shown one.
CANARIES = {
    "title": "canary-title",
    "purpose": "canary-purpose",
    "dataset": "canary-dataset",
    "comment": "canary-comment",
    "template": "canary-template",
    "hold": "canary-hold",
    "webhook": "canary-webhook",
    "job": "canary-job",
    "user": "canary-user",
    "host": "canary-host",
    "script": "prod.fcl",
    "log": "r91_s77.root",
}
#: What the walk asks for, so that no search or filter is left out.
QUERY = {"q": "canary", "text": "canary", "page_size": 1000}
#: Who asks with QUERY too: those who must be shown no canary, and who must be shown all.
SEARCHING = ("nobody", "other liaison", "liaison")
TITLE = re.compile("<title>(.*?)</title>", re.DOTALL)
FORM_VALUES = re.compile(r'<textarea\b[^>]*>[^<]*</textarea>|value="[^"]*"')


def plant(world, liaison) -> None:
    """Put a canary into every kind of text of NOvA."""
    request = Request.objects.filter(pk=world.request.pk)
    request.update(title=CANARIES["title"], purpose=CANARIES["purpose"])
    world.request.stages.update(output_dataset=CANARIES["dataset"])
    write_comment(request=request.get(), text=CANARIES["comment"], by=liaison, at=AT)
    save_template(request=request.get(), name=CANARIES["template"], by=liaison, at=AT)
    Hold.objects.update(reason=CANARIES["hold"])
    Webhook.objects.update(url=f"https://{CANARIES['webhook']}.example.org/")
    named = {"name": CANARIES["job"], "user": CANARIES["user"]}
    Job.objects.update(**named, host=CANARIES["host"])
    ArchivedJob.objects.update(**named)


@dataclass(frozen=True)
class Answer:
    """What a role got from a route: the outcome in a word, what the answers show,
    and what the first of them was.

    `page_status` is that of the page to which a GET leads back, if it does and the walk opens it.
    """

    outcome: str
    canaries: frozenset[str]
    marks: bool
    raw: str
    recorded: str
    page_status: int | None


def walk(client, world, *, search: bool, leads_back: bool) -> dict[str, Answer]:
    """Visit every route, again with a search if `search`, and the pages to which a GET leads back
    if `leads_back`; return the answers by the names of the routes.
    """
    answers = {}
    pages: dict[str, int] = {}
    for route in ROUTES:
        if route.name in EXPECTED and route.name != "accounts:logout":
            url = address(world, route)
            with count_queries() as queries:
                first = client.get(url)
                responses = [post_and_undo(client, url) if takes_only_post(first) else first]
            if search and responses == [first] and reads_parameters(first):
                responses += search_in(client, url)
            page_status = None
            if leads_back and first.status_code == 303:
                page_status = status_of_page(client, first.url, pages)
            answers[route.name] = read(responses, queries=len(queries), page_status=page_status)
    return answers


@contextmanager
def count_queries() -> Iterator[list[str]]:
    """Collect the SQL of each query, without its values,
    which cost more to write out than the query.
    """
    statements: list[str] = []

    def note(execute, sql, *rest):
        statements.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield statements


def takes_only_post(response) -> bool:
    """Return whether a GET was refused, or led back to a page."""
    return response.status_code in (303, 405)


def visit(client, url: str):
    """GET the address, or POST where it takes nothing else and leads back, and change nothing."""
    response = client.get(url)
    return post_and_undo(client, url) if takes_only_post(response) else response


def status_of_page(client, url: str, known: dict[str, int]) -> int:
    """Return the status of the page at an address, at the end of all redirects,
    which is opened once.
    """
    if url not in known:
        known[url] = client.get(url, follow=True).status_code
    return known[url]


def search_in(client, url: str) -> list:
    """GET the address with what its route knows of QUERY, if it knows any."""
    operation = operations().get((path_of(resolve(url).route), "get"))
    known = (
        QUERY
        if operation is None
        else {parameter["name"] for parameter in operation.get("parameters", ())}
    )
    query = {name: value for name, value in QUERY.items() if name in known}
    return [client.get(url, query)] if query else []


def read(responses: list, *, queries: int, page_status: int | None) -> Answer:
    """Return the outcome of the first response, which took so many queries,
    and what is shown by any.
    """
    canaries, marks, raw = set(), False, ""
    for response in responses:
        body = response.getvalue().decode(errors="replace")
        text = f"{response.headers}{body}"
        canaries |= {name for name, canary in CANARIES.items() if canary in text}
        if response.headers.get("Content-Type", "").startswith("text/html"):
            page = FORM_VALUES.sub("", body)
            marks = marks or "U+202E" in page
            if character := HIDDEN.search(page):
                raw = page[max(0, character.start() - 60) : character.end() + 20]
    recorded = describe(responses[0], queries=queries)
    return Answer(outcome_of(responses[0]), frozenset(canaries), marks, raw, recorded, page_status)


def describe(response, *, queries: int) -> str:
    """Return method, status, number of queries and title of a page."""
    title = TITLE.search(response.getvalue().decode(errors="replace"))
    text = " ".join(html.unescape(title[1]).split()) if title else ""
    return f"{response.request['REQUEST_METHOD']} {response.status_code} {queries} {text}".rstrip()


def outcome_of(response) -> str:
    if response.status_code == 401 or response.headers.get("Location", "").startswith(
        ("/accounts/login/", "/admin/login/")
    ):
        return "login"
    return {403: "n", 404: "h"}.get(
        response.status_code, "y" if response.status_code < 500 else "error"
    )


#: Always the same, as pages show the last seven days; in the middle of an hour, as a page that has
#: computed something for the last full hour computes it again in the next.
WALKED_AT = AT + timedelta(days=6, minutes=30)
#: The walk of each role whose answers have been asked for in this process.
WALKS: dict[str, dict[str, Answer]] = {}


@pytest.fixture
def answers(request, db, role) -> dict[str, Answer]:
    """What the role got from each route; the first test that asks walks, and the others read.

    Texts of NOvA are canaries, and all texts have hidden characters.
    """
    if role not in WALKS:
        request.getfixturevalue("caplog").set_level("CRITICAL", logger="django.request")
        count_reads(request.getfixturevalue("monkeypatch"))
        world, who = request.getfixturevalue("world"), request.getfixturevalue("who")
        plant(world, who["liaison"])
        assert append_hidden_characters() > 30
        client = Client()
        client.force_login(who[role])
        with time_machine.travel(WALKED_AT, tick=False):
            searches, leads_back = role in SEARCHING, role == "admin"
            WALKS[role] = walk(client, world, search=searches, leads_back=leads_back)
    return WALKS[role]


def as_roles(*roles: str) -> pytest.MarkDecorator:
    """Run a test once for each role, in the process that has its answers."""
    return pytest.mark.parametrize(
        "role",
        [pytest.param(role, marks=pytest.mark.xdist_group(f"routes as {role}")) for role in roles],
    )


def test_every_route_has_an_expectation():
    names = {route.name for route in ROUTES if not route.name.startswith("admin:")}
    assert names == set(EXPECTED) | PUBLIC | BY_TOKEN | OFF


@as_roles(*ROLES)
def test_role_gets_what_is_expected(answers, role):
    expected = {name: outcomes[ROLES.index(role)] for name, outcomes in EXPECTED.items()}
    del expected["accounts:logout"]
    assert {name: answer.outcome for name, answer in answers.items()} == expected


@as_roles(*ROLES)
def test_role_is_shown_no_raw_hidden_character(answers, role):
    assert {name: answer.raw for name, answer in answers.items() if answer.raw} == {}
    if role == "admin":
        assert sum(answer.marks for answer in answers.values()) >= 20


@as_roles(*ROLES)
def test_answers_are_as_recorded(answers, role):
    """So that code which moves changes nothing: method, status,
    number of queries and title of every route.
    """
    compare_with_recorded(
        "".join(f"{name} {answer.recorded}\n" for name, answer in answers.items()),
        name=f"routes_{role.replace(' ', '_')}.txt",
    )


@as_roles("nobody", "other liaison")
def test_no_route_shows_what_belongs_to_another_experiment(answers, role):
    assert {name: answer.canaries for name, answer in answers.items() if answer.canaries} == {}


@as_roles("liaison")
def test_every_canary_is_shown_to_its_own_experiment(answers, role):
    """So that the test above looks where there is something to see."""
    shown = {canary for answer in answers.values() for canary in answer.canaries}
    assert shown >= CANARIES.keys() - {"host", "webhook"}


@pytest.mark.parametrize("role", ROLES)
def test_every_role_may_log_out(who, client, role):
    client.force_login(who[role])
    assert outcome_of(visit(client, reverse("accounts:logout"))) == "login"


def test_stranger_is_sent_to_the_login(world, client):
    urls = {route.name: address(world, route) for route in ROUTES if route.name in EXPECTED}
    outcomes = {name: outcome_of(visit(client, url)) for name, url in urls.items()}
    assert outcomes == dict.fromkeys(EXPECTED, "login")


@pytest.mark.parametrize("name", sorted(PUBLIC - {"core:readyz"}))
def test_public_route_is_open_to_a_stranger(db, client, name):
    assert client.get(reverse(name)).status_code == 200


@pytest.mark.parametrize("name", sorted(OFF))
def test_route_of_a_provider_that_is_not_set_is_hidden(db, client, name):
    assert client.get(reverse(name)).status_code == 404


def test_feed_wants_a_token_even_of_an_admin(world, client, admin):
    client.force_login(admin)
    url = reverse("api:feed", kwargs={"slug": "farm"})
    assert client.post(url, "{}", content_type="application/json").status_code == 401


def test_back_office_is_for_admins_alone(world, nova, dune, admin, client):
    """Roles only add rights: who has all others is refused what each of them is."""
    lists = [
        route.name for route in ROUTES if route.name.startswith("admin:") and not route.parameters
    ]
    assert len(lists) > 30
    urls = [reverse(name) for name in lists if name not in {"admin:login", "admin:logout"}]
    of_experiments = [("liaison", nova), ("liaison", dune)]
    all_others = people.person("all-others", *of_experiments, ("approver", None), ("shifter", None))
    for user, expected in ((all_others, {"login"}), (admin, {"y", "n"})):
        client.force_login(user)
        assert {outcome_of(visit(client, url)) for url in urls} <= expected, user


@as_roles("admin")
def test_address_that_only_takes_a_form_leads_back_to_a_page(answers, role):
    pages = {name: answer.page_status for name, answer in answers.items() if answer.page_status}
    del pages["submission:retry-act"]  # there is no batch of retries
    assert len(pages) > 30
    assert {name: status for name, status in pages.items() if status not in (200, 403)} == {}
