import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0002_help_texts'),
        ('diagnosis', '0008_retried_on_cluster'),
        ('hosts', '0001_initial'),
        ('statusboard', '0003_help_texts'),
    ]

    operations = [
        migrations.CreateModel(
            name='MeasuredState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=255)),
                ('good', models.BooleanField()),
                ('message', models.CharField(blank=True, max_length=300)),
                ('measured_at', models.DateTimeField()),
                ('since', models.DateTimeField()),
            ],
            options={
                'ordering': ['cluster__name', 'host', 'probe__name'],
            },
        ),
        migrations.CreateModel(
            name='Probe',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=64, unique=True)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('script', models.TextField(help_text='A script for sh. Exit code 0 means good; the last line that it prints is shown beside the result.')),
                ('timeout_seconds', models.PositiveSmallIntegerField(default=20, help_text='Seconds after which it counts as bad, at most 120.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(120)], verbose_name='timeout')),
                ('active', models.BooleanField(default=False)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='ProbeJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('due_at', models.DateTimeField(help_text='When it is tried next or, while a worker has it, when it counts as lost.')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('last_error', models.TextField(blank=True)),
                ('host', models.CharField(help_text='Name of the host, without its domain.', max_length=255)),
                ('name', models.CharField(help_text='Name of the job.', max_length=64, unique=True)),
                ('asked', models.JSONField(default=list, help_text='Names of the probes.')),
                ('state', models.CharField(choices=[('planned', 'Planned'), ('sent', 'Submitted'), ('ended', 'Ended'), ('lost', 'Did not report in time'), ('refused', 'Refused by the scheduler')], default='planned', max_length=16)),
                ('spool_id', models.CharField(blank=True, max_length=64)),
                ('planned_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('good', models.BooleanField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-planned_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='ProbeResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('good', models.BooleanField()),
                ('excused', models.BooleanField(default=False)),
                ('seconds', models.PositiveIntegerField(blank=True, null=True)),
                ('message', models.CharField(blank=True, max_length=300)),
                ('measured_at', models.DateTimeField()),
            ],
            options={
                'ordering': ['probe__name'],
            },
        ),
        migrations.RemoveConstraint(
            model_name='hostexclusion',
            name='host_exclusion_end',
        ),
        migrations.AlterField(
            model_name='hostexclusion',
            name='ended_as',
            field=models.CharField(blank=True, choices=[('returned', 'Returned by a person'), ('expired', 'Expired'), ('probed', 'Returned by the portal: its probe jobs were good'), ('central', 'Central cause: too many hosts failed at once')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='hostexclusion',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_as', ''), ('ended_at', None)), models.Q(('ended_as__in', ['returned', 'expired', 'probed', 'central']), ('ended_at__isnull', False)), _connector='OR'), name='host_exclusion_end'),
        ),
        migrations.AddField(
            model_name='measuredstate',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='measured_states', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='probe',
            name='clusters',
            field=models.ManyToManyField(blank=True, help_text='Where it runs. Empty: on all clusters to which the portal submits.', related_name='probes', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='probe',
            name='service',
            field=models.ForeignKey(blank=True, help_text='The service that it needs. Empty: it checks the host alone.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='probes', to='statusboard.service'),
        ),
        migrations.AddField(
            model_name='measuredstate',
            name='probe',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='measured_states', to='hosts.probe'),
        ),
        migrations.AddField(
            model_name='probejob',
            name='cluster',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='probe_jobs', to='clusters.cluster'),
        ),
        migrations.AddField(
            model_name='probejob',
            name='exclusion',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='probe_jobs', to='hosts.hostexclusion'),
        ),
        migrations.AddField(
            model_name='proberesult',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='hosts.probejob'),
        ),
        migrations.AddField(
            model_name='proberesult',
            name='probe',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='results', to='hosts.probe'),
        ),
        migrations.AddIndex(
            model_name='measuredstate',
            index=models.Index(condition=models.Q(('good', False)), fields=['cluster', 'host'], name='measured_state_bad'),
        ),
        migrations.AddConstraint(
            model_name='measuredstate',
            constraint=models.UniqueConstraint(fields=('cluster', 'host', 'probe'), name='measured_state_once'),
        ),
        migrations.AddIndex(
            model_name='probejob',
            index=models.Index(fields=['cluster', 'host', '-planned_at'], name='probe_job_of_host'),
        ),
        migrations.AddIndex(
            model_name='probejob',
            index=models.Index(fields=['exclusion', '-planned_at'], name='probe_job_of_exclusion'),
        ),
        migrations.AddIndex(
            model_name='probejob',
            index=models.Index(fields=['ended_at'], name='probe_job_ended'),
        ),
        migrations.AddConstraint(
            model_name='probejob',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('cluster', 'host'), name='probe_job_open_once'),
        ),
        migrations.AddConstraint(
            model_name='probejob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('good', None), ('state__in', ['planned', 'sent'])), models.Q(('ended_at__isnull', False), ('good__isnull', False), ('state__in', ['ended', 'lost', 'refused'])), _connector='OR'), name='probe_job_end'),
        ),
        migrations.AddConstraint(
            model_name='proberesult',
            constraint=models.UniqueConstraint(fields=('job', 'probe'), name='probe_result_once'),
        ),
    ]
