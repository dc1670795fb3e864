
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0004_visits'),
        ('clusters', '0002_help_texts'),
        ('jobs', '0005_lines_of_logs'),
    ]

    operations = [
        migrations.CreateModel(
            name='JobTemplates',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='templates', serialize=False, to='jobs.job')),
                ('ended_at', models.DateTimeField()),
                ('failed', models.BooleanField(help_text='Empty if the job neither failed nor completed.', null=True)),
                ('templates', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), help_text='Keys of templates, in order.', size=None)),
                ('read_at', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'templates of jobs',
                'indexes': [django.contrib.postgres.indexes.GinIndex(fields=['templates'], name='job_templates'), models.Index(fields=['ended_at', 'job'], name='job_templates_newest'), models.Index(condition=models.Q(('failed', True)), fields=['ended_at', 'job'], name='job_templates_failed')],
            },
        ),
        migrations.CreateModel(
            name='LineTemplate',
            fields=[
                ('id', models.AutoField(primary_key=True, serialize=False)),
                ('hash', models.BigIntegerField(help_text='64 bits of the hash of the template.')),
                ('text', models.CharField(help_text='The line, with * for what varies, and cut if long.', max_length=300)),
                ('names_error', models.BooleanField(default=False)),
                ('first_seen_at', models.DateTimeField(help_text='End of the first job that wrote it.')),
                ('spread_at', models.DateTimeField(blank=True, help_text='When a job of a second site wrote it, within an hour.', null=True)),
                ('announced_at', models.DateTimeField(blank=True, null=True)),
                ('experiment', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='accounts.experiment')),
                ('first_site', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, to='clusters.site')),
            ],
        ),
        migrations.CreateModel(
            name='ReadLogs',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('stage', models.CharField(blank=True, max_length=64)),
                ('failed', models.PositiveIntegerField()),
                ('good', models.PositiveIntegerField()),
                ('experiment', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, to='accounts.experiment')),
            ],
            options={
                'verbose_name_plural': 'read logs',
            },
        ),
        migrations.CreateModel(
            name='TemplateTotals',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('stage', models.CharField(blank=True, max_length=64)),
                ('failed', models.PositiveIntegerField()),
                ('good', models.PositiveIntegerField()),
                ('template', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='search.linetemplate')),
            ],
            options={
                'verbose_name_plural': 'totals of templates',
            },
        ),
        migrations.AddIndex(
            model_name='linetemplate',
            index=models.Index(fields=['first_seen_at'], name='line_template_newest'),
        ),
        migrations.AddConstraint(
            model_name='linetemplate',
            constraint=models.UniqueConstraint(fields=('hash', 'experiment'), name='line_template_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='readlogs',
            constraint=models.UniqueConstraint(fields=('hour', 'experiment', 'stage'), name='read_logs_once', nulls_distinct=False),
        ),
        migrations.AddIndex(
            model_name='templatetotals',
            index=models.Index(fields=['hour'], name='template_totals_by_hour'),
        ),
        migrations.AddConstraint(
            model_name='templatetotals',
            constraint=models.UniqueConstraint(fields=('template', 'hour', 'stage'), name='template_totals_once'),
        ),
    ]
