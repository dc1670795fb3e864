from django.db import migrations, models
from django.db.models import Case, Q, Value, When

KINDS = [
    ("stuck", "stuck"),
    ("test_failed", "test failed"),
    ("needs_change", "needs change"),
    ("idle", "idle"),
    ("late", "late"),
]


class Migration(migrations.Migration):
    dependencies = [("production", "0013_starts_and_limits")]

    operations = [
        # The column keeps its name, for the release before.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("attention", "attention_once"),
                migrations.RemoveConstraint("attention", "attention_kind"),
                migrations.RemoveIndex("attention", "attention_of_kind"),
                migrations.RemoveField("attention", "kind"),
                migrations.AddField(
                    "attention",
                    "stored_kind",
                    models.CharField(
                        db_column="kind", default="idle", editable=False, max_length=16
                    ),
                    preserve_default=False,
                ),
                migrations.AddConstraint(
                    "attention",
                    models.UniqueConstraint(
                        fields=["request", "stored_kind"], name="attention_once"
                    ),
                ),
                migrations.AddConstraint(
                    "attention",
                    models.CheckConstraint(
                        condition=Q(stored_kind__in=["stuck", "test_failed", "idle", "late"]),
                        name="attention_kind",
                    ),
                ),
                migrations.AddIndex(
                    "attention",
                    models.Index(fields=["stored_kind"], name="attention_of_kind"),
                ),
            ]
        ),
        migrations.AddField(
            "attention",
            "needs_change",
            models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddField(
            "attention",
            "kind",
            models.GeneratedField(
                choices=KINDS,
                db_column="shown_kind",
                db_persist=True,
                expression=Case(
                    When(needs_change=True, then=Value("needs_change")), default="stored_kind"
                ),
                output_field=models.CharField(choices=KINDS, max_length=16),
            ),
        ),
    ]
