from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('diagnosis', '0010_sample_again'),
        ('jobs', '0006_gpus_and_energy'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='logharvest',
            index=models.Index(condition=models.Q(('state', 'path_not_allowed')), fields=['-harvested_at'], name='harvest_refused'),
        ),
    ]
