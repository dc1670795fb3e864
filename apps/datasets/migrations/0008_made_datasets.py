import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0007_merges'),
        ('production', '0008_part_indexes'),
    ]

    operations = [
        migrations.CreateModel(
            name='MadeDataset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('due_at', models.DateTimeField(help_text='When it is tried next or, while a worker has it, when it counts as lost.')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_error', models.TextField(blank=True)),
                ('position', models.PositiveIntegerField(help_text='Of the stage, from 0.')),
                ('chosen', models.CharField(choices=[('all', 'all input files'), ('done', 'input files that are done'), ('missing', 'input files that are waiting or failed'), ('given_up', 'input files that were given up'), ('outputs', 'output files that count')], max_length=16)),
                ('name', models.CharField(max_length=500)),
                ('source', models.CharField(blank=True, help_text='The dataset that its files are from.', max_length=500)),
                ('files', models.JSONField(help_text='Names of its files.')),
                ('file_count', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('queued', 'not made yet'), ('made', 'made'), ('refused', 'refused')], default='queued', max_length=16)),
                ('requested_by', models.CharField(max_length=150)),
                ('requested_at', models.DateTimeField()),
                ('made_at', models.DateTimeField(blank=True, null=True)),
                ('catalogue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='made_datasets', to='datasets.catalogue')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='made_datasets', to='production.request')),
            ],
            options={
                'ordering': ['-pk'],
                'indexes': [models.Index(condition=models.Q(('state', 'queued')), fields=['due_at'], name='made_dataset_queued')],
                'constraints': [models.UniqueConstraint(fields=('catalogue', 'name'), name='made_dataset_once'), models.CheckConstraint(condition=models.Q(models.Q(('made_at__isnull', False), ('state', 'made')), models.Q(('made_at', None), ('state__in', ['queued', 'refused'])), _connector='OR'), name='made_dataset_state')],
            },
        ),
    ]
