"""Hidden characters in every text of the portal's rows, as a job or a stranger may write them."""

from django.apps import apps
from django.db import connection, models
from django.db.models import F, Value
from django.db.models.functions import Concat, Length
from zstandard import ZstdCompressor

from apps.diagnosis.models import LogExcerpt, Verdict
from apps.statusboard.models import UnmappedAlert

#: A direction, an escape sequence, an invisible character and a bell.
CANARY = "\u202e\x1b[31m\u200b\x07"
#: The same, as an expression that compiles and may match nothing, so that the catalogue can be
#: used.
IN_EXPRESSION = "(?:\u202e\x1b\\[31m\u200b\x07)?"
#: Text that is not free: of the portal's own choice, or checked when it is written.
NOT_FREE = {
    "slug", "key", "kind", "state", "digest", "feed", "scheduler", "channel", "nonce", "url", "stream", "feed_name",
    "declaration",
}  # fmt: skip


def append_hidden_characters() -> int:
    """Append the canary to every free text column of the portal's rows;
    return how many columns took it.
    """
    changed = 0
    with connection.cursor() as cursor:
        # This also changes rows that a trigger protects.
        cursor.execute("SET session_replication_role = replica")
    for model in apps.get_models():
        if not model.__module__.startswith("apps."):
            continue
        for field in model._meta.concrete_fields:
            is_text = (
                type(field) in {models.CharField, models.TextField}
                and not field.choices
                and not field.unique
            )
            if (
                is_text
                and field.name not in NOT_FREE
                and "token" not in field.name
                and "password" not in field.name
            ):
                canary = IN_EXPRESSION if field.name == "regex" else CANARY
                longest = (field.max_length or 1_000_000) - len(canary)
                filled = model._base_manager.exclude(**{field.name: ""})
                rows = filled.annotate(size=Length(field.name)).filter(size__lte=longest)
                changed += bool(rows.update(**{field.name: Concat(F(field.name), Value(canary))}))
    for alert in UnmappedAlert.objects.all():
        alert.labels = {name + CANARY: value + CANARY for name, value in alert.labels.items()}
        alert.save()
    for verdict in Verdict.objects.all():
        verdict.reasons = [reason | {"text": reason["text"] + CANARY} for reason in verdict.reasons]
        verdict.save()
    for excerpt in LogExcerpt.objects.all():
        excerpt.compressed = ZstdCompressor().compress(
            excerpt.data.replace(b"503", f"503 {CANARY}".encode())
        )
        excerpt.save()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = DEFAULT")
    return changed
