"""No page shows a control, direction or invisible character of a job or a stranger as it is."""

import re

import pytest
from django.apps import apps
from django.db import connection, models
from django.db.models import F, Value
from django.db.models.functions import Concat, Length
from django.http import HttpResponse
from django.urls import reverse
from zstandard import ZstdCompressor

from apps.core.domain.hidden_characters import HIDDEN
from apps.core.web.middleware import HiddenCharactersMiddleware
from apps.diagnosis.models import LogExcerpt, Verdict
from apps.statusboard.models import UnmappedAlert
from tests.routes import all_routes
from tests.test_routes import EXPECTED

CANARY = "\u202e\x1b[31m\u200b\x07"
FORM_VALUES = re.compile(r'<textarea\b[^>]*>[^<]*</textarea>|value="[^"]*"')
#: Text that is not free: of the portal's own choice, or checked when it is written.
NOT_FREE = {
    "slug", "key", "kind", "state", "digest", "feed", "scheduler", "channel", "nonce", "url", "stream", "feed_name",
    "declaration",
}  # fmt: skip


def poison() -> int:
    """Append the canary to every free text column of the portal's rows; return how many columns took it."""
    changed = 0
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # also to rows that a trigger protects
    for model in apps.get_models():
        if not model.__module__.startswith("apps."):
            continue
        for field in model._meta.concrete_fields:
            is_text = type(field) in {models.CharField, models.TextField} and not field.choices and not field.unique
            if is_text and field.name not in NOT_FREE and "token" not in field.name and "password" not in field.name:
                longest = (field.max_length or 1_000_000) - len(CANARY)
                room = models.Q(**{f"{field.name}__length__lte": longest})
                rows = model._base_manager.exclude(**{field.name: ""}).filter(room)
                changed += bool(rows.update(**{field.name: Concat(F(field.name), Value(CANARY))}))
    for alert in UnmappedAlert.objects.all():
        alert.labels = {name + CANARY: value + CANARY for name, value in alert.labels.items()}
        alert.save()
    for verdict in Verdict.objects.all():
        verdict.reasons = [reason | {"text": reason["text"] + CANARY} for reason in verdict.reasons]
        verdict.save()
    for excerpt in LogExcerpt.objects.all():
        excerpt.compressed = ZstdCompressor().compress(excerpt.data.replace(b"503", f"503 {CANARY}".encode()))
        excerpt.save()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = DEFAULT")
    return changed


@pytest.fixture
def poisoned(world):
    models.CharField.register_lookup(Length)
    models.TextField.register_lookup(Length)
    assert poison() > 30
    return world


def test_no_page_has_a_raw_character(poisoned, client, admin):
    client.force_login(admin)
    found, shown = {}, 0
    for route in all_routes():
        if route.name not in EXPECTED or route.name == "accounts:logout":
            continue
        response = client.get(reverse(route.name, kwargs=poisoned.arguments(route.name, route.parameters)))
        assert response.status_code < 500, route.name
        if response.status_code == 200 and response["Content-Type"].startswith("text/html"):
            page = FORM_VALUES.sub("", response.content.decode())
            shown += "U+202E" in page
            if raw := HIDDEN.search(page):
                found[route.name] = page[max(0, raw.start() - 60) : raw.end() + 20]
    assert found == {}
    assert shown >= 20


def test_values_of_forms_stay_as_they_are():
    page = f'<p title="{CANARY}">{CANARY}</p><input value="{CANARY}"><textarea name="x">{CANARY}</textarea>{CANARY}'
    marked = HiddenCharactersMiddleware(lambda _: HttpResponse(page))(None).content.decode()
    assert marked.count(CANARY) == 2
    assert f'value="{CANARY}"' in marked
    assert f">{CANARY}</textarea>" in marked
    assert marked.count("⟨U+202E⟩") == 3


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "application/octet-stream"])
def test_data_is_left_alone(content_type):
    response = HttpResponse(CANARY, content_type=content_type)
    assert HiddenCharactersMiddleware(lambda _: response)(None).content.decode() == CANARY
