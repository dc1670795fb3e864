import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("diagnosis", "0008_retried_on_cluster"),
        ("jobs", "0005_lines_of_logs"),
    ]

    operations = [
        migrations.CreateModel(
            name="CompletedLog",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When it is tried next or, while a worker has it, when it counts as lost."
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("last_error", models.TextField(blank=True)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["due_at"], name="completed_log_due")],
            },
        ),
    ]
