
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0005_lines_of_logs'),
        ('search', '0002_words_of_logs'),
    ]

    operations = [
        migrations.CreateModel(
            name='LogToIndex',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('due_at', models.DateTimeField(help_text='When it is tried next or, while a worker has it, when it counts as lost.')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_error', models.TextField(blank=True)),
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='jobs.job')),
            ],
            options={
                'verbose_name_plural': 'logs to index',
                'indexes': [models.Index(fields=['due_at'], name='log_to_index_due')],
            },
        ),
    ]
