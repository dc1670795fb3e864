import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    # Each statement locks one table for a moment: together they would deadlock with running code.
    atomic = False

    dependencies = [
        ('datasets', '0008_made_datasets'),
    ]

    operations = [
        migrations.AlterField(
            model_name='knowndataset',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='knowndataset',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='knowndataset',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='madedataset',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='madedataset',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='madedataset',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='stagingrequest',
            name='attempts',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='stagingrequest',
            name='due_at',
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='stagingrequest',
            name='last_error',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
    ]
