import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('diagnosis', '0008_retried_on_cluster'),
        ('production', '0005_stage_history_99'),
        ('submission', '0006_release_requested_at'),
    ]

    operations = [
        migrations.CreateModel(
            name='StageScouts',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField(help_text='Position of the stage, from 0.')),
                ('state', models.CharField(choices=[('scouting', 'first jobs'), ('sound', 'sound'), ('broken', 'broken')], default='scouting', max_length=16)),
                ('allowed', models.PositiveIntegerField(help_text='Jobs that may run before the others.')),
                ('usual_rate', models.FloatField(help_text='Share of earlier jobs of such a stage that failed.')),
                ('ended', models.PositiveIntegerField(default=0, help_text='Jobs that had ended when it was last judged.')),
                ('completed', models.PositiveIntegerField(default=0, help_text='Jobs judged as completed.')),
                ('failed', models.PositiveIntegerField(default=0, help_text='Jobs judged as failed by a cause of their own.')),
                ('is_waiting', models.BooleanField(default=False, help_text='Whether the verdict of a failed job is still awaited.')),
                ('started_at', models.DateTimeField()),
                ('judged_at', models.DateTimeField(blank=True, help_text='Time of the last change of its state.', null=True)),
                ('group', models.ForeignKey(blank=True, help_text='The failure group of most of the failed jobs.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='diagnosis.failuregroup')),
                ('hold', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='production.hold')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scouts', to='production.request')),
            ],
            options={
                'verbose_name_plural': 'stage scouts',
                'constraints': [models.UniqueConstraint(fields=('request', 'position'), name='stage_scouts_once'), models.CheckConstraint(condition=models.Q(('state__in', ['scouting', 'sound', 'broken'])), name='stage_scouts_state')],
            },
        ),
    ]
