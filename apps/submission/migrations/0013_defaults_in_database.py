import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    # Each statement locks one table for a moment: together they would deadlock with running code.
    atomic = False

    dependencies = [
        ('submission', '0012_after_restore'),
    ]

    operations = [
        migrations.AlterField(
            model_name='assignment',
            name='listing_error',
            field=models.TextField(blank=True, db_default='', default='', help_text='Why the files of a dataset could not be listed. Empty: they could.'),
        ),
        migrations.AlterField(
            model_name='retrybatch',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='retrybatch',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='retrybatch',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='retryjob',
            name='changes',
            field=models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict, help_text='Resources that differ from those of the failed job.'),
        ),
        migrations.AlterField(
            model_name='submission',
            name='changes',
            field=models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict, help_text='Resources that differ from those of the stage.'),
        ),
    ]
