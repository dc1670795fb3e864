import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0004_where_datasets_are'),
        ('production', '0007_recoveries'),
    ]

    operations = [
        migrations.CreateModel(
            name='StagingRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('due_at', models.DateTimeField(help_text='When it is tried next or, while a worker has it, when it counts as lost.')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_error', models.TextField(blank=True)),
                ('dataset', models.CharField(max_length=500)),
                ('storage', models.CharField(max_length=500)),
                ('lifetime_seconds', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('queued', 'not sent yet'), ('staging', 'staging'), ('complete', 'on disk'), ('refused', 'refused'), ('overdue', 'not on disk by the deadline'), ('cancelled', 'no longer followed')], default='queued', max_length=16)),
                ('external_id', models.CharField(blank=True, max_length=200)),
                ('files_on_disk', models.BigIntegerField(blank=True, null=True)),
                ('files_waiting', models.BigIntegerField(blank=True, null=True)),
                ('files_stuck', models.BigIntegerField(blank=True, null=True)),
                ('catalogue_state', models.CharField(blank=True, max_length=100)),
                ('catalogue_error', models.TextField(blank=True)),
                ('progress_at', models.DateTimeField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('requested_by', models.CharField(max_length=150)),
                ('requested_at', models.DateTimeField()),
                ('finish_by', models.DateTimeField(help_text='The portal does not wait longer.')),
                ('catalogue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='staging_requests', to='datasets.catalogue')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='staging_requests', to='production.request')),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['queued', 'staging'])), fields=['due_at'], name='staging_request_followed')],
                'constraints': [models.UniqueConstraint(fields=('request', 'catalogue', 'dataset'), name='staging_request_once'), models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'staging', 'complete', 'refused', 'overdue', 'cancelled'])), name='staging_request_state')],
            },
        ),
    ]
