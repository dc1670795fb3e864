"""Workflow types as data. Requests that are there already are of the general type, which asks for what they have."""

import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone


def load(apps, schema_editor):
    from apps.production.domain.types.builtin import STATES, builtin_texts
    from apps.production.domain.types.declaration import read_declaration

    types = apps.get_model("production", "WorkflowType").objects
    versions = apps.get_model("production", "WorkflowVersion").objects
    at = timezone.now()
    for key, text in builtin_texts().items():
        version = versions.create(
            type=types.create(key=key),
            number=1,
            title=read_declaration(text, key=key, states=STATES).title,
            declaration=text,
            created_at=at,
            created_by="opsportal",
        )
        if key == "general":
            apps.get_model("production", "Request").objects.update(workflow=version)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("production", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="WorkflowType",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.SlugField(
                        help_text="Stays as it is: small letters, digits and _.", max_length=40, unique=True
                    ),
                ),
                ("enabled", models.BooleanField(default=True, help_text="New requests may be of this type.")),
                (
                    "experiment",
                    models.ForeignKey(
                        blank=True,
                        help_text="Empty: for every experiment.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="accounts.experiment",
                    ),
                ),
            ],
            options={"ordering": ["key"]},
        ),
        migrations.CreateModel(
            name="WorkflowVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("title", models.CharField(max_length=100)),
                ("declaration", models.TextField(help_text="In YAML; docs/workflows.md says how.")),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                (
                    "type",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="production.workflowtype",
                    ),
                ),
            ],
            options={
                "ordering": ["type", "-number"],
                "constraints": [models.UniqueConstraint(fields=("type", "number"), name="workflow_version_once")],
            },
        ),
        migrations.AddField("request", "arguments", models.JSONField(blank=True, default=dict)),
        migrations.AddField("stage", "kind", models.CharField(default="stage", max_length=40)),
        migrations.AddField("stage", "arguments", models.JSONField(blank=True, default=dict)),
        migrations.AddField(
            "request",
            "workflow",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="requests",
                to="production.workflowversion",
            ),
        ),
        migrations.RunPython(load, migrations.RunPython.noop),
        # The change of the column below waits for no check that the rows above have left for later.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.AlterField(
            "request",
            "workflow",
            models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="requests",
                to="production.workflowversion",
            ),
        ),
    ]
