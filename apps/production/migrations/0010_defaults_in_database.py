from django.db import migrations, models


class Migration(migrations.Migration):

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
