import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('statusboard', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='rawpayload',
            name='attempts',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='rawpayload',
            name='due_at',
            field=models.DateTimeField(default=django.utils.timezone.now, help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='rawpayload',
            name='last_error',
            field=models.TextField(blank=True),
        ),
        migrations.RemoveIndex(model_name='rawpayload', name='payload_waiting'),
        migrations.AddIndex(
            model_name='rawpayload',
            index=models.Index(condition=models.Q(('state', 'received')), fields=['due_at'], name='payload_waiting'),
        ),
    ]
