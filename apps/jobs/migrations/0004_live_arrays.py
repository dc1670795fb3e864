import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_visits"),
        ("clusters", "0002_help_texts"),
        ("jobs", "0003_help_texts"),
        ("production", "0003_bounds_of_retries"),
    ]

    operations = [
        migrations.CreateModel(
            name="LiveArray",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "spool_id",
                    models.CharField(help_text="ID of the array in the scheduler.", max_length=64),
                ),
                ("submitted_at", models.DateTimeField()),
                (
                    "state",
                    models.CharField(
                        choices=[("queued", "Queued"), ("running", "Running"), ("held", "Held")],
                        max_length=8,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True, help_text="As reported by the scheduler.", max_length=100
                    ),
                ),
                ("jobs", models.PositiveIntegerField()),
                ("stage", models.CharField(blank=True, max_length=64)),
                ("account", models.CharField(blank=True, max_length=255)),
                (
                    "cluster",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="clusters.cluster",
                    ),
                ),
                (
                    "experiment",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.experiment",
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="production.request",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["state", "submitted_at"], name="live_array_oldest")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "cluster",
                            "spool_id",
                            "submitted_at",
                            "state",
                            "reason",
                            "account",
                        ),
                        name="live_array_once",
                    )
                ],
            },
        ),
    ]
