"""What strangers can read, on every route: with `PUBLIC_STATUS` the state of services,
and nothing that is internal.
"""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.incidents.notes import (
    acknowledge_incident,
    add_log,
    post_update,
    write_post_mortem,
)
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import cancel_window, schedule_window
from apps.statusboard.enums import State
from apps.statusboard.models import Incident, MonitoringSource, Service
from tests.factories.requests import draft
from tests.factories.statusboard import alert, post, service, source
from tests.routes import all_routes

HOUR = timedelta(hours=1)
PUBLIC_TEXTS = {
    "shown-title",
    "shown-update",
    "shown-window",
    "shown-details",
    "shown-announcement",
    "shown-service",
}
STATUS_ROUTES = {
    "statusboard:public-board",
    "statusboard:status-summary",
    "statusboard:status-calendar",
    "statusboard:status-feed",
    "statusboard:status-badge",
    "statusboard:iri-resources",
    "statusboard:iri-resource",
    "statusboard:iri-incidents",
    "statusboard:iri-incident",
    "statusboard:iri-events",
    "statusboard:iri-event",
}


@pytest.fixture
def world(shifter, nova, liaison, db):
    """A status board with texts for everybody, and a canary in every text that is not."""
    now = timezone.now()
    names = {
        "first_name": "canary-first",
        "last_name": "canary-last",
        "email": "canary@example.org",
    }
    User.objects.filter(pk=shifter.pk).update(username="canary-shifter", **names)
    shifter.refresh_from_db()
    request = draft(liaison, nova)
    type(request).objects.update(title="canary-request")
    type(nova).objects.filter(pk=nova.pk).update(name="canary-experiment")

    prometheus = source(now - 9 * HOUR, slug="canary-source", name="canary-source")
    MonitoringSource.objects.update(
        pull_url="https://canary-pull.internal/", pull_error="canary-error"
    )
    shown = service("shown-service", now - 9 * HOUR)
    Service.objects.update(
        owner="canary-owner",
        contact="canary-contact",
        runbook="https://canary-runbook.internal/",
        advice="canary-advice",
        source=prometheus,
    )
    post(prometheus, now, alert(now, job="canary-label"))  # maps to no service
    incidents = [
        open_incident(
            service=shown,
            state=State.DOWN,
            title="shown-title",
            text="canary-text https://canary-text.internal/",
            url="https://canary-url.internal/",
            by=shifter,
            at=now - 2 * HOUR,
        )
        for _ in range(2)
    ]
    for incident in incidents:
        acknowledge_incident(incident=incident, by=shifter, at=now - HOUR)
        post_update(incident=incident, text="shown-update", by=shifter, at=now - HOUR)
        add_log(
            incident=incident, text="canary-log", origin="canary-host", by=shifter, at=now - HOUR
        )
    close_incident(incident=incidents[0], by=shifter, at=now, reason="canary-reason")
    write_post_mortem(
        incident=Incident.objects.get(pk=incidents[0].pk),
        text="canary-post-mortem",
        by=shifter,
        at=now,
    )

    moments = {"starts_at": now + HOUR, "ends_at": now + 2 * HOUR, "at": now, "by": shifter}
    windows = [
        schedule_window(services=[shown], title="shown-window", text="shown-details", **moments)
        for _ in range(2)
    ]
    cancel_window(window=windows[0], by=shifter, at=now, reason="canary-cancelled")
    post_announcement(title="shown-announcement", by=shifter, at=now)
    post_announcement(
        title="canary-announcement", body="canary-body", by=shifter, at=now, experiments=[nova]
    )
    number = incidents[0].pk
    return {
        "iri-resource": "shown-service",
        "iri-incident": f"incident-{number}",
        "iri-event": f"{number}-1",
    }


def public_answers(world) -> dict[str, str]:
    """Return what a stranger gets from every route without a parameter,
    and from those of IRI objects.
    """
    answers = {}
    for route in all_routes():
        key = world.get(route.name.partition(":")[2])
        if (route.parameters and not key) or not route.name.partition(":")[2]:
            continue
        response = Client().get(reverse(route.name, kwargs={"key": key} if key else {}))
        if response.status_code == 200:
            answers[route.name] = b"".join(response).decode(errors="replace")
    return answers


def test_strangers_read_the_state_of_services_and_nothing_internal(world, settings):
    settings.PUBLIC_STATUS = True
    answers = public_answers(world)
    assert answers.keys() >= STATUS_ROUTES
    leaks = [
        (name, text[text.index("canary") - 30 :][:60])
        for name, text in answers.items()
        if "canary" in text
    ]
    assert leaks == []
    everything = "".join(answers[name] for name in STATUS_ROUTES)
    assert {text for text in PUBLIC_TEXTS if text not in everything} == set()


def test_strangers_read_nothing_of_services_by_default(world):
    answers = public_answers(world)
    assert answers.keys() & STATUS_ROUTES == set()
    leaks = [name for name, text in answers.items() if "canary" in text or "shown-" in text]
    assert leaks == []
