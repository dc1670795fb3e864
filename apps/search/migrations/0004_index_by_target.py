
import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('search', '0003_new_logs_to_index'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='logindex',
            options={'verbose_name_plural': 'indexes of logs'},
        ),
        migrations.AddField(
            model_name='logindex',
            name='failures',
            field=models.PositiveIntegerField(default=0, help_text='Failed attempts in a row.'),
        ),
        migrations.AddField(
            model_name='logindex',
            name='generation',
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AddField(
            model_name='logindex',
            name='indexed',
            field=models.PositiveBigIntegerField(default=0, help_text='Logs added, of those kept before.'),
        ),
        migrations.AddField(
            model_name='logindex',
            name='last_error',
            field=models.TextField(blank=True),
        ),
        migrations.AddField(
            model_name='logindex',
            name='layout',
            field=models.PositiveIntegerField(default=1, help_text='Version of what is stored of a log; an old one is rebuilt.'),
        ),
        migrations.AddField(
            model_name='logindex',
            name='months',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=7), blank=True, default=list, help_text='Such as 2026.11.', size=None),
        ),
        migrations.AddField(
            model_name='logindex',
            name='retry_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='logindex',
            name='serving',
            field=models.BooleanField(default=True, help_text='Whether searches use it.'),
        ),
        migrations.AddField(
            model_name='logindex',
            name='target',
            field=models.CharField(default='postgresql', help_text='The engine, and where it is.', max_length=300),
        ),
        migrations.AddConstraint(
            model_name='logindex',
            constraint=models.UniqueConstraint(fields=('target', 'generation'), name='log_index_once'),
        ),
        migrations.AddConstraint(
            model_name='logindex',
            constraint=models.UniqueConstraint(condition=models.Q(('serving', True)), fields=('target',), name='log_index_serving'),
        ),
    ]
