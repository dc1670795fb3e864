
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0005_lines_of_logs'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='energy_joules',
            field=models.BigIntegerField(blank=True, help_text='Measured by the scheduler.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='gpu_share',
            field=models.FloatField(blank=True, help_text='Mean use of its GPUs, as a share of 1.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='gpus',
            field=models.PositiveIntegerField(blank=True, help_text='GPUs it was given; empty if unknown.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='max_gpu_memory_bytes',
            field=models.BigIntegerField(blank=True, null=True),
        ),
    ]
