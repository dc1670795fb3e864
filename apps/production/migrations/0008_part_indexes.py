from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('production', '0007_recoveries'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='datasetpart',
            index=models.Index(fields=['name'], name='dataset_part_name'),
        ),
        migrations.AddIndex(
            model_name='datasetpart',
            index=models.Index(fields=['whole'], name='dataset_part_whole'),
        ),
    ]
