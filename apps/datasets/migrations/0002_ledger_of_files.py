import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models

MOVE_TABLE = """
ALTER TABLE quality_outputfile RENAME TO datasets_outputfile;
ALTER SEQUENCE quality_outputfile_id_seq RENAME TO datasets_outputfile_id_seq;
"""
MOVE_TABLE_BACK = """
ALTER SEQUENCE datasets_outputfile_id_seq RENAME TO quality_outputfile_id_seq;
ALTER TABLE datasets_outputfile RENAME TO quality_outputfile;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0001_initial'),
        ('production', '0006_hold_by_help_text'),
        ('quality', '0003_files_move'),
    ]

    operations = [
        migrations.CreateModel(
            name='InputFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField()),
                ('run', models.BigIntegerField(blank=True, null=True)),
                ('events', models.BigIntegerField(blank=True, null=True)),
                ('size_bytes', models.BigIntegerField(blank=True, null=True)),
                ('number', models.PositiveIntegerField(blank=True, help_text='Number of the job that reads it, in every stage.', null=True)),
                ('state', models.CharField(choices=[('waiting', 'waiting'), ('taken', 'taken'), ('done', 'done'), ('failed', 'failed'), ('given_up', 'given up')], default='waiting', max_length=16)),
                ('job_key', models.BigIntegerField(blank=True, null=True)),
                ('is_doubled', models.BooleanField(default=False, help_text='Several jobs completed with it.')),
                ('reason', models.TextField(blank=True, help_text='Why it was given up.')),
                ('decided_by', models.CharField(blank=True, max_length=150)),
                ('changed_at', models.DateTimeField()),
                ('stage', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='input_files', to='production.stage')),
            ],
            options={
                'indexes': [
                    models.Index(fields=['stage', 'number'], name='input_file_of_job'),
                    models.Index(fields=['stage', 'state', '-id'], name='input_file_state_of'),
                    models.Index(condition=models.Q(('is_doubled', True)), fields=['stage', 'id'], name='input_file_doubled'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('stage', 'name'), name='input_file_once', opclasses=['int8_ops', 'text_pattern_ops']),
                    models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'taken', 'done', 'failed', 'given_up'])), name='input_file_state'),
                    models.CheckConstraint(condition=models.Q(('state', 'waiting'), ('state', 'given_up'), ('number__isnull', False), _connector='OR'), name='input_file_has_job'),
                ],
            },
        ),
        migrations.CreateModel(
            name='RepeatedResult',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job_key', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('file', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='repeated_results', to='datasets.inputfile')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('file', 'job_key'), name='repeated_result_once')],
            },
        ),
        migrations.CreateModel(
            name='FileTotals',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('files', models.PositiveIntegerField(default=0)),
                ('waiting', models.PositiveIntegerField(default=0)),
                ('taken', models.PositiveIntegerField(default=0)),
                ('done', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('given_up', models.PositiveIntegerField(default=0)),
                ('doubled', models.PositiveIntegerField(default=0)),
                ('listed_at', models.DateTimeField(blank=True, help_text='When the catalogue listed its files.', null=True)),
                ('checked_at', models.DateTimeField(blank=True, help_text='When it was last compared with the jobs.', null=True)),
                ('stage', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='file_totals', to='production.stage')),
            ],
            options={
                'verbose_name_plural': 'file totals',
                'indexes': [models.Index(fields=['checked_at'], name='file_totals_checked')],
                'constraints': [models.CheckConstraint(condition=models.Q(('files', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('waiting'), '+', models.F('taken')), '+', models.F('done')), '+', models.F('failed')), '+', models.F('given_up')))), name='file_totals_balance')],
            },
        ),
        # Output files were a model of the app quality. The table keeps its rows.
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(MOVE_TABLE, MOVE_TABLE_BACK)],
            state_operations=[
                migrations.CreateModel(
                    name='OutputFile',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('key', models.CharField(help_text='Identifies the reporter, such as a job ID.', max_length=200)),
                        ('name', models.CharField(max_length=200)),
                        ('size_bytes', models.BigIntegerField()),
                        ('events', models.BigIntegerField(blank=True, null=True)),
                        ('at', models.DateTimeField()),
                        ('by', models.CharField(max_length=150)),
                        ('stage', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='output_files', to='production.stage')),
                    ],
                    options={
                        'indexes': [models.Index(fields=['name'], name='output_file_name')],
                        'constraints': [models.UniqueConstraint(fields=('stage', 'key', 'name'), name='output_file_once'), models.CheckConstraint(condition=models.Q(('size_bytes__gte', 0)), name='output_file_size')],
                    },
                ),
            ],
        ),
        migrations.AddField(
            model_name='outputfile',
            name='run',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='outputfile',
            name='checksum',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AddField(
            model_name='outputfile',
            name='number',
            field=models.PositiveIntegerField(blank=True, help_text='Number of its job in the stage. Empty: unknown.', null=True),
        ),
        migrations.AddField(
            model_name='outputfile',
            name='counts',
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name='outputfile',
            name='parents',
            field=models.ManyToManyField(blank=True, related_name='output_files', to='datasets.inputfile'),
        ),
        migrations.AddIndex(
            model_name='outputfile',
            index=models.Index(fields=['stage', 'number'], name='output_file_of_job'),
        ),
        migrations.AddIndex(
            model_name='outputfile',
            index=models.Index(fields=['stage', '-id'], name='output_file_newest'),
        ),
    ]
