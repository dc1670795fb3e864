import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    # Each statement locks one table for a moment: together they would deadlock with running code.
    atomic = False

    dependencies = [
        ('archive', '0009_words_of_scripts'),
    ]

    operations = [
        migrations.AlterField(
            model_name='archivedjob',
            name='chosen_by',
            field=models.CharField(blank=True, db_default='', default='', max_length=150),
        ),
        migrations.AlterField(
            model_name='archivedjob',
            name='chosen_reason',
            field=models.CharField(blank=True, db_default='', default='', max_length=200),
        ),
        migrations.AlterField(
            model_name='archivedjob',
            name='conflict',
            field=models.CharField(blank=True, db_default='', default='', max_length=400),
        ),
        migrations.AlterField(
            model_name='archivedjob',
            name='conflict_version',
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='archivedjob',
            name='unstored_captures',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AlterField(
            model_name='capturehost',
            name='beside_portal',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text="Added by `manage.py capture` with the portal's database."),
        ),
        migrations.AlterField(
            model_name='capturehost',
            name='trusted',
            field=models.BooleanField(db_default=False, default=False, help_text='Scripts captured here may be rerun as their owners (owner_command), and logs of running jobs are read.'),
        ),
        migrations.AlterField(
            model_name='maskingtrial',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='maskingtrial',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='maskingtrial',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='sinkdelivery',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='sinkdelivery',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='sinkdelivery',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
    ]
