"""The queue and the fair shares in the API."""

from typing import Any

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request as AnyRequest
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView, command
from apps.accounts.models import Experiment
from apps.accounts.permissions import is_opg
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.api.routes import OfRequests
from apps.production.domain.experiment_shares import read_shares
from apps.production.domain.priority import manual_moves, prospects, shares
from apps.production.domain.priority.listing import QueueRow, queue_row_of, queue_rows, queue_state
from apps.production.domain.reasons import MAX_REASON
from apps.production.enums import RequestedPriority
from apps.production.models import MAX_PRIORITY, MAX_WEIGHT, MIN_PRIORITY, Request
from apps.production.permissions import may_reorder_queue, may_set_shares

_MISSING = {
    404: OpenApiResponse(description="Not found, you do not have access, or it has no score.")
}
MAX_ROWS = 1_000


class TermReader(serializers.Serializer[Any]):
    key = serializers.CharField()
    title = serializers.CharField()
    points = serializers.FloatField()
    why = serializers.CharField()


class StartReader(serializers.Serializer[Any]):
    """Expected start; `early` and `late` are those at a faster and a slower pace of the clusters.

    The dates are null if unknown, with the reason in `basis`.
    """

    early = serializers.DateField(allow_null=True)
    likely = serializers.DateField(allow_null=True)
    late = serializers.DateField(allow_null=True)
    basis = serializers.CharField()


class LineReader(serializers.Serializer[Any]):
    """Score of a request by term, and its rank.

    `rank` and `expected_start` are null outside the queue.
    """

    key = serializers.CharField(source="request.key")
    experiment = serializers.CharField(source="request.experiment.key")
    title = serializers.CharField(source="request.title")
    state = serializers.CharField(source="request.state")
    rank = serializers.IntegerField(allow_null=True)
    priority_class = serializers.CharField(source="request.priority_class")
    priority = serializers.IntegerField(source="request.priority", allow_null=True)
    score = serializers.FloatField()
    terms = TermReader(many=True)
    is_moved = serializers.BooleanField()
    expected_start = StartReader(source="start", allow_null=True)


@extend_schema_serializer(many=False)
class QueueReader(serializers.Serializer[Any]):
    """A page of the queue. Send `version` with a move, and `next_after` to read the next page."""

    version = serializers.IntegerField(source="state.version")
    scored_at = serializers.DateTimeField(source="state.scored_at", allow_null=True)
    total = serializers.IntegerField()
    visible = serializers.IntegerField()
    next_after = serializers.IntegerField(allow_null=True)
    results = LineReader(source="rows", many=True)


class PartReader(serializers.Serializer[Any]):
    """The page of the queue to read."""

    after = serializers.IntegerField(required=False, default=0, min_value=0, max_value=10**9)
    page_size = serializers.IntegerField(
        required=False, default=100, min_value=1, max_value=MAX_ROWS
    )


class UndoWriter(serializers.Serializer[Any]):
    """The reason. With `version`, refused if the queue was changed manually since."""

    reason = serializers.CharField(max_length=MAX_REASON)
    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=0)


class MoveWriter(UndoWriter):
    """The new rank. With `seen_rank`, refused if the request has another rank now."""

    to_rank = serializers.IntegerField(min_value=1, max_value=10**9)
    seen_rank = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1, max_value=10**9
    )


class LevelReader(serializers.Serializer[Any]):
    """A priority to try out. Fields not sent keep their current value."""

    priority_class = serializers.ChoiceField(choices=RequestedPriority.choices, required=False)
    priority = serializers.IntegerField(
        required=False, min_value=MIN_PRIORITY, max_value=MAX_PRIORITY
    )


class WhatIfReader(serializers.Serializer[Any]):
    rank = serializers.IntegerField()
    rank_then = serializers.IntegerField()


@extend_schema(responses={200: LineReader, **_MISSING})
class QueueViewSet(OfRequests):
    serializer_class = LineReader

    @extend_schema(parameters=[PartReader], responses=QueueReader)
    def list(self, request: ApiRequest) -> Response:
        """List the queue, first request first. Ranks count the requests of all experiments."""
        part = checked_data(PartReader(data=request.query_params))
        lines = queue_rows(
            user=request.user, at=timezone.now(), after=part["after"], size=part["page_size"]
        )
        return Response(QueueReader(lines).data)

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return score, rank and expected start of a request."""
        return Response(LineReader(self._line(self.get_object())).data)

    @command(MoveWriter, LineReader, refused=_MISSING, allowed=may_reorder_queue)
    def move(self, production_request: Request, **fields: Any) -> QueueRow:
        """Move a request to a rank manually. The others keep their order."""
        manual_moves.move_in_queue(request=production_request, **fields)
        return self._line(self.get_object())

    @command(
        UndoWriter, LineReader, refused=_MISSING, url_path="undo-move", allowed=may_reorder_queue
    )
    def undo_move(self, production_request: Request, **fields: Any) -> QueueRow:
        """Reset a request to the rank given by its score."""
        manual_moves.undo_manual_move(request=production_request, **fields)
        return self._line(self.get_object())

    @extend_schema(parameters=[LevelReader], responses={200: WhatIfReader, **_MISSING})
    @action(detail=True, methods=["get"], url_path="what-if")
    def what_if(self, request: ApiRequest, key: str) -> Response:
        """Return the rank of a request with another priority. Nothing is changed."""
        line = self._line(self.get_object())
        level = checked_data(LevelReader(data=request.query_params))
        then = prospects.what_if_level(
            line.request,
            priority_class=level.get("priority_class", line.request.priority_class),
            number=level.get("priority", line.request.priority),
            at=timezone.now(),
        )
        if line.rank is None or then is None:
            raise Http404
        return Response({"rank": line.rank, "rank_then": then})

    def _line(self, production_request: Request) -> QueueRow:
        line = queue_row_of(production_request, user=self.request.user, at=timezone.now())
        if line is None:
            raise Http404
        return line


class ShareReader(serializers.Serializer[Any]):
    """Weight of an experiment, its share of production and the share it used, 0 to 1."""

    experiment = serializers.CharField(source="experiment.key")
    weight = serializers.IntegerField()
    share = serializers.FloatField()
    used = serializers.FloatField(allow_null=True)
    core_seconds = serializers.IntegerField()


class SharesReader(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    as_of = serializers.DateTimeField(allow_null=True)
    days = serializers.IntegerField()
    shares = ShareReader(many=True)


class WeightsWriter(serializers.Serializer[Any]):
    """Weights by experiment key. Other weights stay unchanged."""

    weights = serializers.DictField(
        child=serializers.IntegerField(min_value=0, max_value=MAX_WEIGHT)
    )


class SharesWriter(WeightsWriter):
    """Weights with the reason. With `version`, refused if the queue was changed manually since."""

    reason = serializers.CharField(max_length=MAX_REASON)
    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=0)


class ShiftReader(serializers.Serializer[Any]):
    key = serializers.CharField(source="request.key")
    rank = serializers.IntegerField(source="now")
    rank_then = serializers.IntegerField(source="then")
    end = serializers.DateField(source="end_now", allow_null=True, help_text="Expected end.")
    end_then = serializers.DateField(allow_null=True)


class PreviewReader(serializers.Serializer[Any]):
    """The resulting shares, and the requests whose rank or expected end would change."""

    shares = ShareReader(many=True)
    shifts = ShiftReader(many=True)


class _OpgView(ApiView):
    def initial(self, request: AnyRequest, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if not (is_opg(self.request.user) or may_set_shares(self.request.user)):
            raise NotAllowed("Only the OPG can see all shares.")


class SharesView(_OpgView):
    @extend_schema(responses=SharesReader)
    def get(self, request: ApiRequest) -> Response:
        """List the fair shares of the experiments. OPG only."""
        now = read_shares()
        fields = {"version": queue_state().version, "as_of": now.as_of, "days": now.used_days}
        return Response(SharesReader({**fields, "shares": shares.share_rows(now)}).data)

    @extend_schema(request=SharesWriter, responses=SharesReader)
    def put(self, request: ApiRequest) -> Response:
        """Set the weights of experiments. Approvers for all experiments and admins only."""
        body = self.domain_arguments(SharesWriter)
        shares.set_shares(**{**body, "weights": _by_experiment(body["weights"])})
        return self.get(request)


class SharesPreview(_OpgView):
    @extend_schema(request=WeightsWriter, responses=PreviewReader)
    def post(self, request: ApiRequest) -> Response:
        """List the ranks that would change with other weights. Nothing is changed."""
        weights = _by_experiment(checked_data(WeightsWriter(data=request.data))["weights"])
        rows, shifts = shares.what_if_shares(weights, at=timezone.now())
        return Response(PreviewReader({"shares": rows, "shifts": shifts}).data)


def _by_experiment(weights: dict[str, int]) -> dict[int, int]:
    known = dict(Experiment.objects.values_list("key", "pk"))
    if unknown := {key: ["This experiment does not exist."] for key in weights if key not in known}:
        raise InvalidFields(unknown)
    return {known[key]: weight for key, weight in weights.items()}
