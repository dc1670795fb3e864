import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        ('statusboard', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        TrigramExtension(),
        migrations.CreateModel(
            name='Request',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(editable=False, max_length=24, unique=True)),
                ('arguments', models.JSONField(blank=True, default=dict)),
                ('title', models.CharField(blank=True, max_length=200)),
                ('campaign', models.CharField(blank=True, help_text='Name of a group of requests of the experiment.', max_length=64)),
                ('purpose', models.TextField(blank=True)),
                ('scan', models.TextField(blank=True, help_text='Parameters and values, one per line: energy = 1, 2, 5.')),
                ('deadline', models.DateField(blank=True, null=True)),
                ('requested_priority', models.CharField(choices=[('low', 'low'), ('normal', 'normal'), ('high', 'high'), ('urgent', 'urgent')], default='normal', max_length=16)),
                ('priority_reason', models.TextField(blank=True)),
                ('state', models.CharField(choices=[('draft', 'draft'), ('submitted', 'submitted'), ('checking', 'checking'), ('changes_requested', 'changes requested'), ('awaiting_approval', 'awaiting approval'), ('approved', 'approved'), ('queued', 'queued'), ('testing', 'testing'), ('running', 'running'), ('on_hold', 'on hold'), ('completing', 'completing'), ('data_quality', 'data quality'), ('done', 'done'), ('done_partial', 'partially done'), ('rejected', 'rejected'), ('cancelled', 'cancelled'), ('superseded', 'superseded')], default='draft', max_length=24)),
                ('held_from', models.CharField(blank=True, help_text='The state to which a request on hold returns.', max_length=24)),
                ('priority_class', models.CharField(blank=True, choices=[('low', 'low'), ('normal', 'normal'), ('high', 'high'), ('urgent', 'urgent')], help_text='Set by the OPG; empty if not set.', max_length=16)),
                ('priority', models.PositiveSmallIntegerField(blank=True, help_text='Set by the OPG within the class; higher numbers run sooner.', null=True)),
                ('version', models.PositiveIntegerField(default=1, help_text='Incremented by every change; guards against lost updates.')),
                ('created_at', models.DateTimeField()),
                ('editor_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, help_text='Users who wrote any revision of its content.', size=None)),
                ('submitted_at', models.DateTimeField(blank=True, null=True)),
                ('approved_at', models.DateTimeField(blank=True, null=True)),
                ('work_began_at', models.DateTimeField(blank=True, help_text='When jobs of it were first submitted, seen or reported, tests included.', null=True)),
                ('expected_start', models.DateField(blank=True, help_text='Empty: unknown, or it has started.', null=True)),
                ('expected_start_early', models.DateField(blank=True, null=True)),
                ('expected_start_late', models.DateField(blank=True, null=True)),
                ('ignores_advice_until', models.DateTimeField(blank=True, help_text='Until then its jobs are submitted although the advice is not to.', null=True)),
                ('expected_end', models.DateField(blank=True, help_text='When its last job is expected to finish.', null=True)),
                ('expected_end_early', models.DateField(blank=True, null=True)),
                ('expected_end_late', models.DateField(blank=True, null=True)),
                ('forecast_stages', models.JSONField(blank=True, default=dict, editable=False, help_text='Expected ends of the stages of a running request, by name.')),
                ('forecast_basis', models.TextField(blank=True, help_text='What the forecast is based on, or why it is unknown.')),
                ('forecast_at', models.DateTimeField(blank=True, help_text='When the forecast was computed.', null=True)),
                ('part_done', models.FloatField(blank=True, help_text='Part of the requested jobs that have completed, 0 to 1; kept with the forecast.', null=True)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('approved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('cloned_from', models.ForeignKey(blank=True, help_text='The request it is a copy of.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='clones', to='production.request')),
                ('closed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('experiment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='requests', to='accounts.experiment')),
                ('submitted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('superseded_by', models.ForeignKey(blank=True, help_text='The request that replaces it.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='supersedes', to='production.request')),
            ],
        ),
        migrations.CreateModel(
            name='Attention',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('stuck', 'stuck'), ('test_failed', 'test failed'), ('idle', 'idle'), ('late', 'late')], max_length=16)),
                ('since', models.DateTimeField()),
                ('words', models.CharField(max_length=300)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attention', to='production.request')),
            ],
            options={
                'verbose_name_plural': 'attention',
                'ordering': ['-kind'],
                'indexes': [models.Index(fields=['kind'], name='attention_of_kind')],
                'constraints': [models.UniqueConstraint(fields=('request', 'kind'), name='attention_once'), models.CheckConstraint(condition=models.Q(('kind__in', ['stuck', 'test_failed', 'idle', 'late'])), name='attention_kind')],
            },
        ),
        migrations.CreateModel(
            name='QueueState',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.PositiveIntegerField(default=0, help_text='Incremented by every change by a user.')),
                ('changed_by', models.CharField(blank=True, max_length=150)),
                ('changed_at', models.DateTimeField(blank=True, null=True)),
                ('change', models.CharField(blank=True, max_length=300)),
                ('scored_at', models.DateTimeField(blank=True, null=True)),
                ('starts', models.PositiveIntegerField(default=0, help_text='Requests that left the queue for production.')),
                ('starts_days', models.FloatField(default=0, help_text='The number of days counted.')),
            ],
        ),
        migrations.CreateModel(
            name='RequestCounter',
            fields=[
                ('experiment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='accounts.experiment')),
                ('last', models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='ShareUse',
            fields=[
                ('experiment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='accounts.experiment')),
                ('core_seconds', models.BigIntegerField()),
                ('days', models.PositiveSmallIntegerField(help_text='The number of days summed.')),
                ('as_of', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'share uses',
            },
        ),
        migrations.CreateModel(
            name='ApprovalGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('role', models.CharField(blank=True, choices=[('liaison', 'Liaison'), ('approver', 'Approver'), ('shifter', 'Shifter'), ('admin', 'Admin')], help_text='All users with this role belong to the group.', max_length=16)),
                ('retired_at', models.DateTimeField(blank=True, editable=False, help_text='No one signs for it since then.', null=True)),
                ('experiment', models.ForeignKey(blank=True, help_text='Empty: all experiments.', null=True, on_delete=django.db.models.deletion.CASCADE, to='accounts.experiment')),
                ('members', models.ManyToManyField(blank=True, help_text='They can sign only requests that they can see.', related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='ExperimentShare',
            fields=[
                ('experiment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='share', serialize=False, to='accounts.experiment')),
                ('weight', models.PositiveIntegerField(default=100)),
                ('by', models.CharField(max_length=150)),
                ('at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('weight__lte', 10000)), name='share_weight')],
            },
        ),
        migrations.CreateModel(
            name='Stage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('kind', models.CharField(default='stage', max_length=40)),
                ('arguments', models.JSONField(blank=True, default=dict)),
                ('name', models.CharField(blank=True, max_length=64)),
                ('release', models.CharField(blank=True, max_length=100)),
                ('configuration', models.CharField(blank=True, max_length=300)),
                ('input_dataset', models.CharField(blank=True, help_text='Empty: the output of the previous stage.', max_length=300)),
                ('events', models.BigIntegerField(blank=True, null=True)),
                ('jobs', models.PositiveIntegerField(blank=True, null=True)),
                ('memory_bytes', models.BigIntegerField(blank=True, help_text='Per job.', null=True)),
                ('wall_seconds', models.PositiveIntegerField(blank=True, help_text='Per job.', null=True)),
                ('output_dataset', models.CharField(blank=True, max_length=300)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='stages', to='production.request')),
                ('services', models.ManyToManyField(blank=True, related_name='stages', to='statusboard.service')),
            ],
            options={
                'ordering': ['request', 'position'],
            },
        ),
        migrations.CreateModel(
            name='OutputReport',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='Chosen by the reporter. The same key replaces the earlier report.', max_length=200)),
                ('files_in', models.BigIntegerField(blank=True, null=True)),
                ('events_in', models.BigIntegerField(blank=True, null=True)),
                ('files_out', models.BigIntegerField(blank=True, null=True)),
                ('events_out', models.BigIntegerField(blank=True, null=True)),
                ('by', models.CharField(max_length=150)),
                ('at', models.DateTimeField()),
                ('counted', models.BooleanField(default=False, help_text='Included in the counts of the stage.')),
                ('stage', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='output_reports', to='production.stage')),
            ],
        ),
        migrations.CreateModel(
            name='Hold',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
                ('reminded_at', models.DateTimeField(blank=True, help_text='Time of the last reminder.', null=True)),
                ('lifted_at', models.DateTimeField(blank=True, null=True)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('experiment', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='accounts.experiment')),
                ('lifted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('stage', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='holds', to='production.stage')),
            ],
        ),
        migrations.CreateModel(
            name='StageAcceptance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('jobs_asked', models.PositiveIntegerField()),
                ('jobs_completed', models.PositiveIntegerField()),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
                ('by', models.CharField(max_length=150)),
                ('stage', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='acceptance', to='production.stage')),
            ],
        ),
        migrations.CreateModel(
            name='StageCounts',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('files_in', models.BigIntegerField(blank=True, null=True)),
                ('events_in', models.BigIntegerField(blank=True, null=True)),
                ('files_out', models.BigIntegerField(blank=True, null=True)),
                ('events_out', models.BigIntegerField(blank=True, null=True)),
                ('reports', models.PositiveIntegerField(default=0)),
                ('counted_at', models.DateTimeField(blank=True, null=True)),
                ('stage', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='counts', to='production.stage')),
            ],
            options={
                'verbose_name_plural': 'stage counts',
            },
        ),
        migrations.CreateModel(
            name='StageHistory',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Lower case.', max_length=64)),
                ('release', models.CharField(blank=True, max_length=100)),
                ('configuration', models.CharField(blank=True, max_length=300)),
                ('output_dataset', models.CharField(blank=True, max_length=300)),
                ('events_per_job', models.FloatField(blank=True, null=True)),
                ('attempts', models.PositiveIntegerField(help_text='All finished jobs, in any state.')),
                ('completed', models.PositiveIntegerField()),
                ('core_seconds', models.FloatField(help_text='Over all attempts.')),
                ('completed_wall_seconds', models.FloatField()),
                ('wall_seconds', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None)),
                ('memory_bytes', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None)),
                ('per_day', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), help_text='Jobs completed per day, over days with any.', size=None)),
                ('last_ended_at', models.DateTimeField()),
                ('last_completed_at', models.DateTimeField(blank=True, null=True)),
                ('experiment', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='accounts.experiment')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='history', to='production.request')),
            ],
            options={
                'verbose_name_plural': 'stage histories',
            },
        ),
        migrations.CreateModel(
            name='StageLocation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('note', models.CharField(blank=True, help_text='Location, such as a dataset or URL.', max_length=500)),
                ('at', models.DateTimeField()),
                ('by', models.CharField(max_length=150)),
                ('stage', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='location', to='production.stage')),
            ],
        ),
        migrations.CreateModel(
            name='WorkflowType',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.SlugField(help_text='Cannot be changed. Lower-case letters, digits and _.', max_length=40, unique=True)),
                ('enabled', models.BooleanField(default=True, help_text='New requests can have this type.')),
                ('experiment', models.ForeignKey(blank=True, help_text='Empty: all experiments.', null=True, on_delete=django.db.models.deletion.PROTECT, to='accounts.experiment')),
            ],
            options={
                'ordering': ['key'],
            },
        ),
        migrations.CreateModel(
            name='ApprovalRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('remind_after_days', models.PositiveSmallIntegerField(default=3, help_text='Send one reminder to the users a request waits for. 0: never.')),
                ('enabled', models.BooleanField(default=True)),
                ('experiment', models.ForeignKey(blank=True, help_text='Empty: all experiments.', null=True, on_delete=django.db.models.deletion.CASCADE, to='accounts.experiment')),
                ('groups', models.ManyToManyField(blank=True, help_text='All of them must sign. Without groups, one approver is enough.', limit_choices_to={'retired_at': None}, to='production.approvalgroup')),
                ('workflow', models.ForeignKey(blank=True, help_text='Empty: all types.', null=True, on_delete=django.db.models.deletion.CASCADE, to='production.workflowtype')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='WorkflowVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('title', models.CharField(max_length=100)),
                ('declaration', models.TextField(help_text='YAML; see docs/workflows.md.')),
                ('created_at', models.DateTimeField()),
                ('created_by', models.CharField(max_length=150)),
                ('type', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='versions', to='production.workflowtype')),
            ],
            options={
                'ordering': ['type', '-number'],
            },
        ),
        migrations.AddField(
            model_name='request',
            name='workflow',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='requests', to='production.workflowversion'),
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(blank=True, choices=[('approver', 'Approver')], help_text='Only as an approver. Without group and role: everything the user may sign.', max_length=16)),
                ('from_at', models.DateTimeField()),
                ('until_at', models.DateTimeField()),
                ('created_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_by', models.CharField(blank=True, max_length=150)),
                ('from_user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations_given', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, help_text='Only signatures of this group.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='production.approvalgroup')),
                ('to_user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations_taken', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-pk'],
                'constraints': [models.CheckConstraint(condition=models.Q(('from_user', models.F('to_user')), _negated=True), name='delegation_to_another'), models.CheckConstraint(condition=models.Q(('until_at__gt', models.F('from_at'))), name='delegation_ends_later'), models.CheckConstraint(condition=models.Q(('group', None), ('role', ''), _connector='OR'), name='delegation_of_one_thing')],
            },
        ),
        migrations.CreateModel(
            name='QueueEntry',
            fields=[
                ('request', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='queue_entry', serialize=False, to='production.request')),
                ('is_queued', models.BooleanField(help_text='It has a rank: queued, or put on hold while queued.')),
                ('points', models.FloatField(help_text='Sum of the terms, without waiting and manual moves.')),
                ('terms', models.JSONField(default=list)),
                ('hand_points', models.FloatField(default=0, help_text='Added by a manual move.')),
                ('hand_by', models.CharField(blank=True, max_length=150)),
                ('hand_at', models.DateTimeField(blank=True, null=True)),
                ('hand_reason', models.TextField(blank=True)),
                ('sort_key', models.FloatField()),
                ('tie', models.FloatField(help_text='Orders entries with the same key, smallest first.')),
                ('core_seconds', models.FloatField(blank=True, help_text='Estimated size; empty: unknown.', null=True)),
                ('days', models.FloatField(blank=True, help_text='Estimated duration; empty: unknown.', null=True)),
                ('days_low', models.FloatField(blank=True, help_text='The duration at a fast pace.', null=True)),
                ('days_high', models.FloatField(blank=True, help_text='The duration at a slow pace.', null=True)),
                ('size_basis', models.CharField(blank=True, max_length=200)),
                ('starts_on', models.CharField(blank=True, help_text='The cluster that starts it now.', max_length=64)),
                ('sized_at', models.DateTimeField()),
                ('sized_version', models.PositiveIntegerField(help_text='Version of the request when its size was estimated.')),
                ('ahead_of', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='production.request')),
                ('behind', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='production.request')),
            ],
            options={
                'verbose_name_plural': 'queue entries',
            },
        ),
        migrations.CreateModel(
            name='FormKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=64)),
                ('version', models.PositiveIntegerField(default=0, help_text='Of the request, when the form last saved it.')),
                ('by_button', models.BooleanField(default=False, help_text='Saved by a button, so the user saw the result.')),
                ('author', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='production.request')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('author', 'key'), name='form_key_once')],
            },
        ),
        migrations.CreateModel(
            name='DatasetPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=500)),
                ('whole', models.CharField(max_length=500)),
                ('first', models.BigIntegerField()),
                ('last', models.BigIntegerField()),
                ('total', models.BigIntegerField()),
                ('files', models.JSONField(blank=True, null=True)),
                ('due_at', models.DateTimeField()),
                ('defined_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.TextField(blank=True)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='dataset_parts', to='production.request')),
                ('split_from', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='production.request')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('defined_at', None)), fields=['due_at'], name='dataset_part_waiting')],
                'constraints': [models.UniqueConstraint(fields=('request', 'name'), name='dataset_part_once')],
            },
        ),
        migrations.CreateModel(
            name='Comment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('field', models.CharField(blank=True, help_text='Path, such as stages.0.jobs; empty: the request.', max_length=120)),
                ('place', models.CharField(help_text='Label of the field at that time.', max_length=200)),
                ('text', models.TextField(blank=True)),
                ('at', models.DateTimeField()),
                ('edited_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('resolved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('thread', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='answers', to='production.comment')),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comments', to='production.request')),
            ],
            options={
                'indexes': [models.Index(fields=['request', 'id'], name='production__request_2c4c55_idx'), models.Index(fields=['by', 'at'], name='production__by_id_dbfa25_idx')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('resolved_at', None), ('resolved_by', None)), models.Q(('resolved_at__isnull', False), ('thread', None)), _connector='OR'), name='comment_resolved_pair'), models.CheckConstraint(condition=models.Q(('withdrawn_at', None), ('text', ''), _connector='XOR'), name='comment_withdrawn_is_empty')],
            },
        ),
        migrations.CreateModel(
            name='Reminder',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(max_length=24)),
                ('since', models.DateTimeField()),
                ('at', models.DateTimeField()),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reminders', to='production.request')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('request', 'state', 'since'), name='reminder_once')],
            },
        ),
        migrations.CreateModel(
            name='RequestLink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('combined', 'combined into'), ('split', 'split into')], max_length=16)),
                ('note', models.CharField(blank=True, help_text='For example which part it is.', max_length=200)),
                ('at', models.DateTimeField()),
                ('by', models.CharField(max_length=150)),
                ('earlier', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='links_on', to='production.request')),
                ('later', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='links_back', to='production.request')),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['combined', 'split'])), name='link_kind'), models.CheckConstraint(condition=models.Q(('earlier', models.F('later')), _negated=True), name='link_to_another'), models.UniqueConstraint(fields=('earlier', 'later'), name='link_once')],
            },
        ),
        migrations.CreateModel(
            name='RequestRevision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.PositiveIntegerField(help_text='Version of the request with this content.')),
                ('content', models.JSONField()),
                ('begun_at', models.DateTimeField(help_text='Time of the first of the merged saves.')),
                ('at', models.DateTimeField()),
                ('by', models.CharField(max_length=150)),
                ('is_submitted', models.BooleanField(default=False)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='revisions', to='production.request')),
            ],
            options={
                'indexes': [models.Index(fields=['request', '-id'], name='production__request_ba366b_idx')],
            },
        ),
        migrations.CreateModel(
            name='RequestTemplate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80)),
                ('workflow_key', models.CharField(max_length=40)),
                ('workflow_number', models.PositiveIntegerField()),
                ('content', models.JSONField(help_text='Content as `plain` writes it.')),
                ('saved_at', models.DateTimeField()),
                ('saved_by', models.CharField(max_length=150)),
                ('experiment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='request_templates', to='accounts.experiment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('experiment', 'name'), name='template_name_once')],
            },
        ),
        migrations.CreateModel(
            name='Signature',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('group_name', models.CharField(blank=True, help_text='Name at that time; empty: an approver.', max_length=100)),
                ('at', models.DateTimeField()),
                ('version', models.PositiveIntegerField()),
                ('content', models.JSONField(help_text='The content that was signed.')),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_by', models.CharField(blank=True, max_length=150)),
                ('withdrawn_reason', models.TextField(blank=True)),
                ('by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('for_user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='production.approvalgroup')),
                ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='signatures', to='production.request')),
                ('sent_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('withdrawn_at', None)), fields=('request', 'group'), name='signature_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('by', models.F('made_by')), models.Q(('by', models.F('sent_by')), ('sent_by__isnull', False)), _connector='OR', _negated=True), name='signature_not_of_requester'), models.CheckConstraint(condition=models.Q(('for_user', None), models.Q(('for_user', models.F('made_by')), models.Q(('for_user', models.F('sent_by')), ('sent_by__isnull', False)), ('for_user', models.F('by')), _connector='OR', _negated=True), _connector='OR'), name='signature_not_for_requester')],
            },
        ),
        migrations.AddIndex(
            model_name='stage',
            index=models.Index(condition=models.Q(('output_dataset', ''), _negated=True), fields=['output_dataset'], name='stage_writes'),
        ),
        migrations.AddIndex(
            model_name='stage',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.indexes.OpClass(django.db.models.functions.text.Upper('output_dataset'), name='gin_trgm_ops'), name='stage_words_of_output'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.UniqueConstraint(fields=('request', 'position'), name='stage_position_once'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(('events__isnull', True), ('events__gt', 0), _connector='OR'), name='stage_events_positive'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(('jobs__isnull', True), ('jobs__gt', 0), _connector='OR'), name='stage_jobs_positive'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(('memory_bytes__isnull', True), ('memory_bytes__gt', 0), _connector='OR'), name='stage_memory_bytes_positive'),
        ),
        migrations.AddConstraint(
            model_name='stage',
            constraint=models.CheckConstraint(condition=models.Q(('wall_seconds__isnull', True), ('wall_seconds__gt', 0), _connector='OR'), name='stage_wall_seconds_positive'),
        ),
        migrations.AddIndex(
            model_name='outputreport',
            index=models.Index(condition=models.Q(('counted', False)), fields=['stage'], name='output_report_uncounted'),
        ),
        migrations.AddConstraint(
            model_name='outputreport',
            constraint=models.UniqueConstraint(fields=('stage', 'key'), name='output_report_once'),
        ),
        migrations.AddConstraint(
            model_name='hold',
            constraint=models.CheckConstraint(condition=models.Q(('experiment', None), ('stage', None), _connector='OR'), name='hold_level'),
        ),
        migrations.AddConstraint(
            model_name='hold',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lifted_at', None), ('lifted_by', None)), models.Q(('lifted_at__isnull', False), ('lifted_by__isnull', False)), _connector='OR'), name='hold_lifted_pair'),
        ),
        migrations.AddConstraint(
            model_name='hold',
            constraint=models.UniqueConstraint(condition=models.Q(('lifted_at', None)), fields=('experiment', 'stage'), name='hold_once', nulls_distinct=False),
        ),
        migrations.AddIndex(
            model_name='stagehistory',
            index=models.Index(fields=['experiment', 'name', '-last_ended_at'], name='stage_history_alike'),
        ),
        migrations.AddConstraint(
            model_name='stagehistory',
            constraint=models.UniqueConstraint(fields=('request', 'name'), name='stage_history_once'),
        ),
        migrations.AddConstraint(
            model_name='workflowversion',
            constraint=models.UniqueConstraint(fields=('type', 'number'), name='workflow_version_once'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(fields=['-created_at', '-id'], name='production__created_bcbb1d_idx'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(fields=['experiment', '-created_at', '-id'], name='production__experim_fc403b_idx'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(fields=['state', '-created_at', '-id'], name='production__state_f65d7d_idx'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.indexes.OpClass(django.db.models.functions.text.Upper('key'), name='gin_trgm_ops'), name='request_words_of_key'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.indexes.OpClass(django.db.models.functions.text.Upper('title'), name='gin_trgm_ops'), name='request_words_of_title'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(condition=models.Q(('campaign', ''), _negated=True), fields=['experiment', 'campaign'], name='request_campaign'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(condition=models.Q(('scan', ''), _negated=True), fields=['experiment'], name='request_scans'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['draft', 'submitted', 'checking', 'changes_requested', 'awaiting_approval', 'approved', 'queued', 'testing', 'running', 'on_hold', 'completing', 'data_quality', 'done', 'done_partial', 'rejected', 'cancelled', 'superseded'])), name='request_state'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('requested_priority__in', ['low', 'normal', 'high', 'urgent'])), name='request_requested_priority'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('priority', None), ('priority__range', (1, 9)), _connector='OR'), name='request_priority'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('priority_class__in', ['', 'low', 'normal', 'high', 'urgent'])), name='request_priority_class'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('submitted_at__isnull', False), ('submitted_by__isnull', False), ('state__in', ['approved', 'awaiting_approval', 'cancelled', 'changes_requested', 'checking', 'completing', 'data_quality', 'done', 'done_partial', 'on_hold', 'queued', 'rejected', 'running', 'submitted', 'superseded', 'testing'])), models.Q(('submitted_at__isnull', True), ('submitted_by__isnull', True), ('state__in', ['cancelled', 'draft', 'superseded'])), _connector='OR'), name='request_submitted_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approved_at__isnull', False), ('approved_by__isnull', False), ('state__in', ['approved', 'cancelled', 'completing', 'data_quality', 'done', 'done_partial', 'on_hold', 'queued', 'running', 'superseded', 'testing'])), models.Q(('approved_at__isnull', True), ('approved_by__isnull', True), ('state__in', ['awaiting_approval', 'cancelled', 'changes_requested', 'checking', 'draft', 'rejected', 'submitted', 'superseded'])), _connector='OR'), name='request_approved_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', False), ('state__in', ['cancelled', 'done', 'done_partial', 'rejected', 'superseded'])), models.Q(models.Q(('state__in', ['cancelled', 'done', 'done_partial', 'rejected', 'superseded']), _negated=True), ('closed_at', None), ('closed_by', None)), _connector='OR'), name='request_closed'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'on_hold'), models.Q(('held_from', ''), _negated=True)), models.Q(models.Q(('state', 'on_hold'), _negated=True), ('held_from', '')), _connector='OR'), name='request_held_from'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('superseded_by', None), ('state', 'superseded'), _connector='XOR'), name='request_superseded_by'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('approved_by', None), models.Q(('approved_by', models.F('created_by')), ('approved_by', models.F('submitted_by')), _connector='OR', _negated=True), _connector='OR'), name='request_approver_is_not_requester'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('editor_ids__contains', [models.F('approved_by')]), _negated=True), name='request_approver_is_not_editor'),
        ),
        migrations.AddIndex(
            model_name='queueentry',
            index=models.Index(fields=['is_queued', '-sort_key', 'tie'], name='queue_entry_order'),
        ),
        migrations.AddConstraint(
            model_name='queueentry',
            constraint=models.CheckConstraint(condition=models.Q(('ahead_of', None), ('behind', None), _connector='OR'), name='queue_entry_one_promise'),
        ),
    ]
