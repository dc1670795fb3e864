from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("quality", "0001_initial")]

    operations = [
        migrations.RemoveConstraint("qualityrun", "quality_run_judged"),
        migrations.RenameField("qualityrun", "asked_at", "requested_at"),
        migrations.RenameField("qualityrun", "asked_by", "requested_by"),
        migrations.RenameField("qualityrun", "judged_at", "evaluated_at"),
        migrations.AlterField(
            "qualityrun",
            "state",
            models.CharField(
                choices=[("waiting", "running"), ("evaluated", "evaluated")],
                default="waiting",
                max_length=16,
            ),
        ),
        migrations.RunSQL(
            "UPDATE quality_qualityrun SET state = 'evaluated' WHERE state = 'judged'",
            "UPDATE quality_qualityrun SET state = 'judged' WHERE state = 'evaluated'",
        ),
        migrations.AddConstraint(
            "qualityrun",
            models.CheckConstraint(
                condition=Q(state="waiting", evaluated_at=None)
                | Q(state="evaluated", evaluated_at__isnull=False),
                name="quality_run_evaluated",
            ),
        ),
    ]
