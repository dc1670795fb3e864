
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0005_lines_of_logs'),
        ('search', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='LogIndex',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('indexed_from', models.BigIntegerField(blank=True, null=True)),
                ('complete', models.BooleanField(default=False)),
                ('indexed_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='LogWords',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='log_words', serialize=False, to='jobs.job')),
                ('ended_at', models.DateTimeField()),
                ('words', django.contrib.postgres.search.SearchVectorField()),
            ],
            options={
                'verbose_name_plural': 'words of logs',
                'indexes': [django.contrib.postgres.indexes.GinIndex(fields=['words'], name='log_words'), models.Index(fields=['ended_at', 'job'], name='log_words_newest')],
            },
        ),
    ]
