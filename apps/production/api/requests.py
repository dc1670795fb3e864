"""Requests in the API: read, write and move."""

from datetime import date
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, Serializer, allowed_by, command
from apps.accounts.models import User
from apps.core.api.input import valid
from apps.core.api.pagination import NewestFirst
from apps.production.api.activity import HistoryRoutes
from apps.production.api.approvals import SignatureRoutes, SignWriter
from apps.production.api.exchange import YamlRoutes
from apps.production.api.lineage import LinkRoutes
from apps.production.api.serializers import (
    ChangedRequestWriter,
    NewRequestWriter,
    PriorityWriter,
    ReasonWriter,
    RequestReader,
    RequestRow,
    RescheduleWriter,
    SuccessorWriter,
)
from apps.production.api.templates import CloneRoutes
from apps.production.domain.actors import may
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of, with_people, with_stages
from apps.production.domain.lifecycle import moves
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.lifecycle.steps import check_actor
from apps.production.domain.priority.ranks import queue_ranks
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.domain.requests.reschedule import reschedule
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import Actor, Verb
from apps.production.filters import RequestFilter
from apps.production.models import Request
from apps.production.permissions import is_liaison_of, may_create


def _may_set_priority(user: User, production_request: Request) -> bool:
    return may(user, Actor.APPROVER, production_request)


def _move_by(verb: Verb, description: str, writer: Serializer = ReasonWriter) -> Any:
    """Return the route for a verb."""

    def move(view: "RequestViewSet", production_request: Request, **fields: Any) -> Request:
        if "successor" in fields:
            fields["successor"] = view.get_queryset().filter(key=fields["successor"]).first()
        return MOVE_FUNCTIONS[verb](request=production_request, **fields)

    move.__name__ = verb.name.lower()
    move.__doc__ = description

    def allowed(user: User, production_request: Request) -> None:
        check_actor(production_request, verb, user, timezone.now())

    return command(writer, RequestReader, url_path=verb.value, allowed=allowed)(move)


@extend_schema_view(
    list=extend_schema(
        summary="List requests",
        description="Requests that you can see, newest first, without their stages.",
    ),
    retrieve=extend_schema(summary="Return a request", description="A request with its stages."),
)
class RequestViewSet(
    SignatureRoutes,
    CloneRoutes,
    HistoryRoutes,
    LinkRoutes,
    YamlRoutes,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
):
    pagination_class = NewestFirst
    filterset_class = RequestFilter
    orderings = {"created_at": "created_at", "deadline": "due"}

    def get_queryset(self) -> QuerySet[Request]:
        visible = Request.objects.visible_to(self.request.user)
        if self.action != "list":
            return with_stages(visible)
        # Sort requests without a deadline last.
        return with_people(visible).annotate(due=Coalesce("deadline", date.max))

    def get_serializer_class(self) -> type[RequestRow]:
        return RequestRow if self.action == "list" else RequestReader

    def get_serializer_context(self) -> dict[str, Any]:
        if getattr(self, "swagger_fake_view", False):
            ranks = {}
        else:
            ranks = queue_ranks()
        return {**super().get_serializer_context(), "ranks": ranks}

    @allowed_by(lambda user, _: may_create(user))
    @extend_schema(request=NewRequestWriter, responses={201: RequestReader})
    def create(self, request: ApiRequest) -> Response:
        """Create a draft. Liaisons of the experiment only."""
        sent = valid(NewRequestWriter(data=request.data, context={"request": request}))
        made = create_draft(
            experiment=sent.validated_data["experiment"],
            content=sent.content(),
            by=request.user,
            at=timezone.now(),
        )
        return self.respond(made, RequestReader, status.HTTP_201_CREATED)

    @allowed_by(is_liaison_of)
    @extend_schema(request=ChangedRequestWriter, responses=RequestReader)
    def update(self, request: ApiRequest, key: str) -> Response:
        """Replace a request. Fields not sent are emptied; material changes need new signatures."""
        return self._save(RequestContent(workflow=workflow_of(self.get_object().workflow)))

    @allowed_by(is_liaison_of)
    @extend_schema(request=ChangedRequestWriter, responses=RequestReader)
    def partial_update(self, request: ApiRequest, key: str) -> Response:
        """Change fields of a request; `version` is required."""
        return self._save(None)

    submit = _move_by(Verb.SUBMIT, "Submit a complete request for approval.")
    approve = _move_by(
        Verb.APPROVE, "Sign a request for your groups; the last signature approves it.", SignWriter
    )
    request_changes = _move_by(
        Verb.REQUEST_CHANGES, "Return a request to its liaisons. Requires a reason."
    )
    reject = _move_by(Verb.REJECT, "Reject a request. Requires a reason.")
    reopen = _move_by(
        Verb.REOPEN,
        "Reopen a rejected request: checks and signatures start over. Requires a reason.",
    )
    test = _move_by(Verb.TEST, "Start the test of a queued request.")
    fail_test = _move_by(
        Verb.FAIL_TEST, "Return a request to the queue after a failed test. Requires a reason."
    )
    start = _move_by(Verb.START, "Start production.")
    return_to_queue = _move_by(
        Verb.RETURN_TO_QUEUE,
        "Return a started request to the queue while none of its jobs was submitted; planned ones "
        "are discarded. Requires a reason.",
    )
    hold = _move_by(Verb.HOLD, "Put a request on hold: no new jobs start. Requires a reason.")
    release = _move_by(Verb.RELEASE, "Release a request that is on hold.")
    complete = _move_by(Verb.COMPLETE, "Mark the jobs of a request as finished.")
    review = _move_by(Verb.REVIEW, "Pass a request to data quality.")
    resume = _move_by(Verb.RESUME, "Return a request to production. Requires a reason.")
    done = _move_by(Verb.DONE, "Close a request that was produced.")
    done_partial = _move_by(
        Verb.DONE_PARTIAL, "Close a request that was produced in part. Requires a reason."
    )
    cancel = _move_by(Verb.CANCEL, "Cancel a request. Requires a reason once it is submitted.")
    supersede = _move_by(
        Verb.SUPERSEDE,
        "Replace a request by another one, the `successor`. Requires a reason.",
        SuccessorWriter,
    )

    @command(PriorityWriter, RequestReader, url_path="set-priority", allowed=_may_set_priority)
    def set_priority(self, production_request: Request, **fields: Any) -> Request:
        """Set the priority in the queue. Requires a reason."""
        return moves.set_priority(request=production_request, **fields)

    @command(RescheduleWriter, RequestReader, allowed=is_liaison_of)
    def reschedule(self, production_request: Request, **fields: Any) -> Request:
        """Postpone the deadline of a submitted request, or request a class. Requires a reason."""
        return reschedule(request=production_request, **fields)

    def _save(self, base: RequestContent | None) -> Response:
        production_request = self.get_object()
        sent = valid(
            ChangedRequestWriter(data=self.request.data, context={"request": self.request})
        )
        saved = save_draft(
            request=production_request,
            content=sent.content(content_of(production_request) if base is None else base),
            version=sent.validated_data["version"],
            experiment=sent.validated_data.get("experiment"),
            by=self.request.user,
            at=timezone.now(),
        )
        return self.respond(saved, RequestReader)
