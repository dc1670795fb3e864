import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0003_states_of_hosts"),
        ("hosts", "0003_probe_queue"),
    ]

    operations = [
        migrations.CreateModel(
            name="HostSpan",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "host",
                    models.CharField(
                        help_text="Name of the host, without its domain.", max_length=255
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("up", "up"),
                            ("draining", "draining"),
                            ("drained", "drained"),
                            ("down", "down"),
                            ("silent", "silent"),
                            ("maintenance", "maintenance"),
                            ("rebooting", "rebooting"),
                            ("off", "off"),
                            ("other", "other"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "words",
                    models.CharField(
                        blank=True,
                        help_text="The state as the scheduler words it, at its start.",
                        max_length=128,
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("booted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "rebooted",
                    models.BooleanField(
                        default=False,
                        help_text="It began with a boot that the look before did not know.",
                    ),
                ),
                ("since", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("until", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="host_spans",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["-since", "-pk"],
                "indexes": [
                    models.Index(fields=["host", "-since"], name="host_span_of_host"),
                    models.Index(fields=["-since", "-id"], name="host_span_newest"),
                    models.Index(fields=["until"], name="host_span_ended"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("until", None)),
                        fields=("cluster", "host"),
                        name="host_span_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("seen_at__gte", models.F("since")),
                            models.Q(
                                ("until", None), ("until__gt", models.F("seen_at")), _connector="OR"
                            ),
                        ),
                        name="host_span_order",
                    ),
                ],
            },
        ),
    ]
