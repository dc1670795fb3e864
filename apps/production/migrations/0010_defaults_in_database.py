from django.db import migrations, models


class Migration(migrations.Migration):
    # Each statement locks one table for a moment: together they would deadlock with running code.
    atomic = False

    dependencies = [
        ('production', '0009_use_of_cores'),
    ]

    operations = [
        migrations.AlterField(
            model_name='datasetpart',
            name='is_held',
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
