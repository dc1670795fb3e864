"""Serializers of services, incidents, maintenance windows and announcements."""

from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.accounts.models import Experiment
from apps.core.api.moments import DayField, MomentField
from apps.core.models import Event
from apps.statusboard.domain.board.board import BoardRow
from apps.statusboard.domain.maintenance.hand_over_notes import LONGEST_NOTE
from apps.statusboard.domain.states.history import states_of_incident
from apps.statusboard.enums import INCIDENT_STATES, Repeat, Resolution, State, WindowEffect
from apps.statusboard.models import Announcement, DowntimeWindow, Incident, Service


class ServiceSerializer(serializers.Serializer[Any]):
    """A service. `state` is the worst of its own state and the states of its components."""

    slug = serializers.SlugField(source="service.slug")
    name = serializers.CharField(source="service.name")
    kind = serializers.CharField(source="service.kind")
    parent: Any = serializers.SerializerMethodField()
    state = serializers.ChoiceField(choices=State.choices)
    own_state = serializers.ChoiceField(choices=State.choices, source="own")
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    cause = serializers.CharField()
    incident = serializers.IntegerField(source="incident.pk", default=None, allow_null=True)
    next_window = serializers.IntegerField(source="next_window.pk", default=None, allow_null=True)
    advice = serializers.CharField(source="service.advice")
    owner = serializers.CharField(source="service.owner")
    contact = serializers.CharField(source="service.contact")
    runbook = serializers.CharField(source="service.runbook")

    def get_parent(self, row: BoardRow) -> str | None:
        slugs: dict[int | None, str] = self.context["slugs"]
        return slugs.get(row.service.parent_id)


class AvailabilitySerializer(serializers.Serializer[Any]):
    """Shares of the time in a known, unplanned state, 0 to 1; null if there was no such time."""

    up = serializers.FloatField(allow_null=True)
    degraded = serializers.FloatField(allow_null=True)
    down = serializers.FloatField(allow_null=True)
    planned_seconds = serializers.FloatField()
    unknown_seconds = serializers.FloatField()


class SlotSerializer(serializers.Serializer[Any]):
    """An hour or a day in UTC: its worst state, and its incident if it has exactly one."""

    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=State.choices)
    seconds = serializers.DictField(child=serializers.FloatField(), help_text="Seconds by state.")
    incident = serializers.IntegerField(allow_null=True)


class HistorySerializer(serializers.Serializer[Any]):
    """States of a service by hour or day, oldest first. The last slot is still in progress."""

    availability = AvailabilitySerializer()
    slots = SlotSerializer(many=True)


class StateSpanSerializer(serializers.Serializer[Any]):
    """A state of an incident, in [started_at, ended_at)."""

    state = serializers.ChoiceField(choices=State.choices)
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class IncidentSerializer(serializers.ModelSerializer[Incident]):
    """An incident. `stale_at` is when its lease expired; `states` are in order of time."""

    service: Any = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    source: Any = serializers.SlugRelatedField(slug_field="slug", read_only=True, allow_null=True)
    # The URL may be empty.
    url = serializers.CharField(read_only=True)
    states: Any = serializers.SerializerMethodField()
    resolution = serializers.ChoiceField(
        choices=Resolution.choices, read_only=True, allow_blank=True
    )

    class Meta:
        model = Incident
        fields = [
            "id",
            "service",
            "source",
            "dedup_key",
            "state",
            "states",
            "title",
            "text",
            "url",
            "started_at",
            "ended_at",
            "lease_expires_at",
            "stale_at",
            "flap_count",
            "opened_by",
            "closed_by",
            "resolution",
        ]
        read_only_fields = fields

    @extend_schema_field(StateSpanSerializer(many=True))
    def get_states(self, incident: Incident) -> Any:
        return StateSpanSerializer(states_of_incident(incident, timezone.now()), many=True).data


class NewIncidentSerializer(serializers.Serializer[Incident]):
    service: Any = serializers.SlugRelatedField(slug_field="slug", queryset=Service.objects.all())
    state = serializers.ChoiceField(
        choices=[(state.value, state.label) for state in INCIDENT_STATES]
    )
    title = serializers.CharField(max_length=200)
    text = serializers.CharField(required=False, allow_blank=True)
    url = serializers.URLField(max_length=2000, required=False, allow_blank=True)
    started_at = MomentField(required=False)


class UpdateIncidentSerializer(serializers.Serializer[Incident]):
    """Fields to change. Omitted fields keep their values."""

    state = serializers.ChoiceField(
        choices=[(state.value, state.label) for state in INCIDENT_STATES], required=False
    )
    title = serializers.CharField(max_length=200, required=False)
    text = serializers.CharField(required=False, allow_blank=True)
    url = serializers.URLField(max_length=2000, required=False, allow_blank=True)
    since = MomentField(required=False, help_text="When it took this state. Default: now.")
    reason = serializers.CharField(max_length=2000)


class CloseIncidentSerializer(serializers.Serializer[Incident]):
    reason = serializers.CharField(max_length=2000)
    ended_at = MomentField(required=False)


class DivideIncidentSerializer(serializers.Serializer[Incident]):
    ended_at = MomentField(help_text="When the first outage ended.")
    resumed_at = MomentField(required=False, help_text="When the second one started, if later.")
    reason = serializers.CharField(max_length=2000)


class ReasonSerializer(serializers.Serializer[Incident]):
    reason = serializers.CharField(max_length=2000)


class ZoneField(serializers.CharField):
    """A time zone by its IANA name."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            return ZoneInfo(super().to_internal_value(data))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise serializers.ValidationError("Not a time zone, such as Europe/Berlin.") from None


class WindowSerializer(serializers.ModelSerializer[DowntimeWindow]):
    services: Any = serializers.SlugRelatedField(slug_field="slug", many=True, read_only=True)

    class Meta:
        model = DowntimeWindow
        fields = [
            "id",
            "title",
            "text",
            "services",
            "effect",
            "starts_at",
            "ends_at",
            "cancelled_at",
            "scheduled_by",
            "series",
        ]
        read_only_fields = fields


class NewWindowSerializer(serializers.Serializer[DowntimeWindow]):
    title = serializers.CharField(max_length=200)
    text = serializers.CharField(required=False, allow_blank=True)
    services: Any = serializers.SlugRelatedField(
        slug_field="slug", many=True, queryset=Service.objects.all()
    )
    starts_at = MomentField()
    ends_at = MomentField()
    effect = serializers.ChoiceField(choices=WindowEffect.choices, required=False)
    repeat = serializers.ChoiceField(choices=Repeat.choices, required=False)
    last_day = DayField(required=False, help_text="Of repeated work: included.")
    zone: Any = ZoneField(
        required=False, help_text="Repeated work keeps its time of day there. Default: UTC."
    )


class CancelWindowSerializer(ReasonSerializer):
    following = serializers.BooleanField(
        required=False, help_text="Also the later windows of its series."
    )


class AnnouncementSerializer(serializers.ModelSerializer[Announcement]):
    services: Any = serializers.SlugRelatedField(slug_field="slug", many=True, read_only=True)
    experiments: Any = serializers.SlugRelatedField(slug_field="key", many=True, read_only=True)

    class Meta:
        model = Announcement
        fields = [
            "id",
            "title",
            "body",
            "do_not_submit",
            "pinned",
            "services",
            "experiments",
            "starts_at",
            "ends_at",
            "withdrawn_at",
            "posted_by",
        ]
        read_only_fields = fields


class NewAnnouncementSerializer(serializers.Serializer[Announcement]):
    title = serializers.CharField(max_length=200)
    body = serializers.CharField(required=False, allow_blank=True)
    do_not_submit = serializers.BooleanField(required=False)
    pinned = serializers.BooleanField(required=False)
    services: Any = serializers.SlugRelatedField(
        slug_field="slug", many=True, required=False, queryset=Service.objects.all()
    )
    experiments: Any = serializers.SlugRelatedField(
        slug_field="key", many=True, required=False, queryset=Experiment.objects.all()
    )
    starts_at = MomentField(required=False)
    ends_at = MomentField(required=False)


class HandOverNoteSerializer(serializers.ModelSerializer[Event]):
    author = serializers.CharField(source="actor")
    text = serializers.CharField(source="reason")

    class Meta:
        model = Event
        fields = ["id", "author", "at", "text"]
        read_only_fields = fields


class NewHandOverNoteSerializer(serializers.Serializer[Event]):
    text = serializers.CharField(max_length=LONGEST_NOTE)


class PinAnnouncementSerializer(serializers.Serializer[Announcement]):
    pinned = serializers.BooleanField()
