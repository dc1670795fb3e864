
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0003_states_of_hosts'),
        ('production', '0009_use_of_cores'),
        ('submission', '0011_files_checks'),
    ]

    operations = [
        migrations.CreateModel(
            name='KnownDatabase',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('identity', models.CharField(help_text='Of the PostgreSQL server, and of the database in it.', max_length=64)),
                ('noticed_at', models.DateTimeField()),
                ('seen_at', models.DateTimeField(help_text='When it was last in use, to the minute.')),
                ('state_at', models.DateTimeField(blank=True, help_text='When the copy was made that was restored; else empty.', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('identity', ''), _negated=True), name='known_database_identity')],
            },
        ),
        migrations.CreateModel(
            name='UnknownArray',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('spool_id', models.CharField(max_length=64)),
                ('position', models.PositiveSmallIntegerField(help_text='Position of the stage, from 0.')),
                ('submitted_at', models.DateTimeField()),
                ('noticed_at', models.DateTimeField()),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='clusters.cluster')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='unknown_arrays', to='production.request')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('cluster', 'spool_id', 'submitted_at'), name='unknown_array_once')],
            },
        ),
    ]
