"""Signatures, inbox and delegations in the API."""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiViewSet, command
from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.core.api.conditional import Guarded
from apps.core.api.moments import MomentField
from apps.production.api.routes import RequestRoutes
from apps.production.api.serializers import ChangeReader, PriorityWriter, ReasonWriter
from apps.production.domain.approvals.delegations import (
    delegate,
    delegations_of,
    may_delegate,
    revoke_delegation,
)
from apps.production.domain.approvals.inbox import InboxItem, inbox_items, waiting_for
from apps.production.domain.approvals.requirements import SignatureSlot, approval_of
from apps.production.domain.content.stages import with_stages
from apps.production.domain.lifecycle import moves
from apps.production.models import ApprovalGroup, Delegation, Request, Signature

#: Maximum number of requests in the inbox. The list of requests has all of them.
MAX_SHOWN = 100


class SignWriter(PriorityWriter):
    """Sign for all your groups whose signature is missing, or for the named one.

    The priority is set in the same step.
    """

    group = serializers.CharField(required=False, allow_blank=True, default="", max_length=100)


class SignatureReader(serializers.ModelSerializer[Signature]):
    by = serializers.CharField(source="by.username", read_only=True)
    for_user = serializers.CharField(
        source="for_user.username", read_only=True, allow_null=True, default=None
    )

    class Meta:
        model = Signature
        fields = [
            "id",
            "by",
            "for_user",
            "at",
            "version",
            "withdrawn_at",
            "withdrawn_by",
            "withdrawn_reason",
        ]
        read_only_fields = fields


class SlotReader(serializers.Serializer[SignatureSlot]):
    """A required signature.

    `earlier` is a signature that is no longer valid; `changes` are the changes since then.
    """

    group = serializers.CharField(
        source="group.name", allow_null=True, default=None, help_text="null: an approver."
    )
    signature = SignatureReader(allow_null=True)
    people = serializers.ListField(child=serializers.CharField(), help_text="Users who can sign.")
    mine = serializers.SerializerMethodField(help_text="Whether you can sign.")
    earlier = SignatureReader(allow_null=True)
    changes = ChangeReader(many=True)

    def get_mine(self, slot: SignatureSlot) -> bool:
        return slot.mine is not None and slot.signature is None


class WithdrawWriter(ReasonWriter):
    """The signature to withdraw, by `id`."""

    signature = serializers.IntegerField(min_value=1, max_value=2**63 - 1)


class TurnReader(serializers.Serializer[InboxItem]):
    """A request that waits for you. `for_users` delegated it to you for their absence."""

    request = serializers.CharField(source="request.key")
    title = serializers.CharField(source="request.title")
    state = serializers.CharField(source="request.state")
    todo = serializers.CharField()
    why = serializers.CharField()
    since = serializers.DateTimeField()
    due = serializers.DateField(source="request.deadline", allow_null=True)
    for_users = serializers.ListField(child=serializers.CharField())


@extend_schema(
    responses=TurnReader(many=True),
    description="List the requests that wait for you, nearest deadline first.",
)
class InboxViewSet(ApiViewSet[Request]):
    """The inbox."""

    queryset = Request.objects.none()
    serializer_class: Any = TurnReader
    pagination_class = None

    def list(self, request: ApiRequest) -> Response:
        """List the first 100. The list of requests has all of them."""
        at = timezone.now()
        waiting = waiting_for(request.user, at).select_related("experiment", "submitted_by")
        turns: Any = inbox_items(waiting[:MAX_SHOWN], request.user, at)
        return Response(TurnReader(turns, many=True).data)


class DelegationReader(serializers.ModelSerializer[Delegation]):
    from_user = serializers.CharField(source="from_user.username", read_only=True)
    to_user = serializers.CharField(source="to_user.username", read_only=True)
    group = serializers.CharField(
        source="group.name", read_only=True, allow_null=True, default=None
    )
    role = serializers.ChoiceField(choices=Role.choices, read_only=True, allow_blank=True)

    class Meta:
        model = Delegation
        fields = [
            "id",
            "from_user",
            "to_user",
            "group",
            "role",
            "from_at",
            "until_at",
            "created_at",
            "revoked_at",
        ]
        read_only_fields = fields


class DelegationWriter(serializers.Serializer[Any]):
    """Your delegate for one group, as an approver or, with neither, for all that you can sign."""

    to_user = serializers.CharField(max_length=150)
    group = serializers.SlugRelatedField(
        "name",
        queryset=ApprovalGroup.objects.filter(retired_at=None),
        required=False,
        allow_null=True,
    )
    role = serializers.ChoiceField(
        choices=[(Role.APPROVER.value, "approver")], required=False, allow_blank=True
    )
    from_at = MomentField(required=False, help_text="Default: now.")
    until_at = MomentField()


class DelegationViewSet(Guarded, ReadOnlyModelViewSet[Delegation], ApiViewSet[Delegation]):
    """Your delegations, given and received."""

    queryset = Delegation.objects.none()
    serializer_class = DelegationReader
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Delegation]:
        return delegations_of(self.request.user)

    @command(
        DelegationWriter, DelegationReader, code=201, allowed=lambda user, _: may_delegate(user)
    )
    def create(self, *, to_user: str, at: datetime, **fields: Any) -> Delegation:
        """Let another user sign for you during a period."""
        delegatee = User.objects.filter(username=to_user, is_active=True).first()
        return delegate(to_user=delegatee, at=at, **{"from_at": at, **fields})

    @command(reader=DelegationReader)
    def revoke(self, delegation: Delegation, **fields: Any) -> Delegation:
        """Revoke a delegation now. Signatures that were given under it stay valid."""
        return revoke_delegation(delegation=delegation, **fields)


class SignatureRoutes(RequestRoutes):
    """Routes of signatures below a request."""

    @extend_schema(responses=SlotReader(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def signatures(self, request: ApiRequest, key: str) -> Response:
        """List required signatures, possible signers, and changes since earlier signatures."""
        return self._slots_response(self.get_object())

    @extend_schema(request=WithdrawWriter, responses=SlotReader(many=True), filters=False)
    @action(detail=True, methods=["post"], url_path="withdraw-signature", pagination_class=None)
    def withdraw_signature(self, request: ApiRequest, key: str) -> Response:
        """Withdraw your own signature while others are missing. Requires a reason."""
        production_request = self.get_object()
        moves.withdraw_signature(
            request=production_request, **self.domain_arguments(WithdrawWriter)
        )
        return self._slots_response(
            with_stages(Request.objects.filter(pk=production_request.pk)).get()
        )

    def _slots_response(self, production_request: Request) -> Response:
        slots: Any = approval_of(production_request, self.request.user, timezone.now()).slots
        return Response(SlotReader(slots, many=True).data)
