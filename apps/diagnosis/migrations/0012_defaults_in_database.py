import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    # Each statement locks one table for a moment: together they would deadlock with running code.
    atomic = False

    dependencies = [
        ('diagnosis', '0011_refused_logs'),
    ]

    operations = [
        migrations.AlterField(
            model_name='causeanalysis',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='causeanalysis',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='causeanalysis',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='completedlog',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='completedlog',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='completedlog',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='logharvest',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='logharvest',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='reclassification',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='reclassification',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='reclassification',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
    ]
