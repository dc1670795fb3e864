
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('production', '0008_part_indexes'),
    ]

    operations = [
        migrations.AddField(
            model_name='stagehistory',
            name='completed_core_seconds',
            field=models.FloatField(blank=True, help_text='Empty if counted by an older release.', null=True),
        ),
        migrations.AddField(
            model_name='stagehistory',
            name='completed_cpu_seconds',
            field=models.FloatField(blank=True, help_text='Empty if counted by an older release.', null=True),
        ),
    ]
