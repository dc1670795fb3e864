"""Fewer bytes a job: sizes of 4 bytes, and indexes that fill their pages as jobs come in; when to train anew."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("archive", "0006_retention")]

    operations = [
        migrations.AddField(
            "dictionary",
            "newest_content",
            models.BigIntegerField(default=0, help_text="Primary key of the newest content then."),
        ),
        migrations.AlterField("archivedjob", "script_bytes", models.IntegerField()),
        migrations.AlterField("archivedjob", "environment_bytes", models.IntegerField()),
        migrations.RemoveIndex("archivedjob", "archived_job_newest"),
        migrations.RemoveIndex("archivedjob", "archived_job_experiment"),
        migrations.RemoveIndex("archivedjob", "archived_job_user"),
        migrations.AddIndex("archivedjob", models.Index(fields=["submitted_at", "id"], name="archived_job_newest")),
        migrations.AddIndex(
            "archivedjob",
            models.Index(
                fields=["experiment", "submitted_at", "id"],
                condition=models.Q(experiment__isnull=False),
                name="archived_job_experiment",
            ),
        ),
        migrations.AddIndex(
            "archivedjob",
            models.Index(
                fields=["user", "submitted_at", "id"], condition=~models.Q(user=""), name="archived_job_user"
            ),
        ),
    ]
