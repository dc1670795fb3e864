"""Words of scripts, filled in the background; the jobs of a user in their order."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_cluster_logins'),
        ('archive', '0003_masking_rules'),
        ('clusters', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ScriptWords',
            fields=[
                ('pk', models.CompositePrimaryKey('script', 'day', blank=True, editable=False, primary_key=True, serialize=False)),
                ('script', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='words', to='archive.blob')),
                ('day', models.DateField()),
                ('words', django.contrib.postgres.search.SearchVectorField()),
            ],
        ),
        migrations.CreateModel(
            name='WordIndex',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('indexed_to', models.BigIntegerField(default=0)),
                ('goal', models.BigIntegerField(default=0)),
                ('goal_xid', models.BigIntegerField(default=0)),
                ('indexed_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddIndex(
            model_name='archivedjob',
            index=models.Index(condition=models.Q(('user', ''), _negated=True), fields=['user', '-submitted_at', '-id'], name='archived_job_user'),
        ),
        migrations.AddIndex(
            model_name='scriptwords',
            index=django.contrib.postgres.indexes.GinIndex(fields=['words'], name='script_words'),
        ),
    ]
