from django.db import migrations, models

COPY_ENDS = """
UPDATE recovery_decision AS decision SET failed_at = job.ended_at
FROM jobs_job AS job WHERE job.id = decision.job_id
"""


class Migration(migrations.Migration):
    dependencies = [("recovery", "0010_rule_of_pack")]

    operations = [
        migrations.AddField(
            model_name="decision",
            name="failed_at",
            field=models.DateTimeField(
                blank=True,
                help_text="End of the failed attempt, copied from the job to keep lists fast.",
                null=True,
            ),
        ),
        migrations.RunSQL(COPY_ENDS, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(
                fields=["rule", "-decided_at", "-id"], name="decision_of_rule_newest"
            ),
        ),
        migrations.AddIndex(
            model_name="decision",
            index=models.Index(
                condition=models.Q(
                    ("attempt", 1),
                    models.Q(("arm", "pending"), _negated=True),
                    models.Q(("arm", "person"), ("rule__isnull", True), _negated=True),
                ),
                fields=["-failed_at", "-id"],
                include=["experiment", "recovery"],
                name="decision_first_failures",
            ),
        ),
    ]
