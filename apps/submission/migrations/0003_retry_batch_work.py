import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('submission', '0002_cancel_requested_at'),
    ]

    operations = [
        migrations.AddField(
            model_name='retrybatch',
            name='attempts',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='retrybatch',
            name='due_at',
            field=models.DateTimeField(default=django.utils.timezone.now, help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='retrybatch',
            name='last_error',
            field=models.TextField(blank=True),
        ),
    ]
