import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('statusboard', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='RequestCounter',
            fields=[
                ('experiment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to='accounts.experiment')),
                ('last', models.PositiveIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Request',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(editable=False, max_length=24, unique=True)),
                ('title', models.CharField(blank=True, max_length=200)),
                ('purpose', models.TextField(blank=True)),
                ('deadline', models.DateField(blank=True, null=True)),
                ('requested_priority', models.CharField(choices=[('low', 'low'), ('normal', 'normal'), ('high', 'high'), ('urgent', 'urgent')], default='normal', max_length=16)),
                ('priority_reason', models.TextField(blank=True)),
                ('state', models.CharField(choices=[('draft', 'draft'), ('submitted', 'awaiting approval'), ('changes_asked', 'changes asked'), ('approved', 'approved'), ('rejected', 'rejected'), ('withdrawn', 'withdrawn'), ('done', 'done')], default='draft', max_length=16)),
                ('priority', models.PositiveSmallIntegerField(blank=True, help_text='Set by the OPG; the higher, the sooner.', null=True)),
                ('version', models.PositiveIntegerField(default=1, help_text='Grows with every change; who writes must know it.')),
                ('created_at', models.DateTimeField()),
                ('submitted_at', models.DateTimeField(blank=True, null=True)),
                ('approved_at', models.DateTimeField(blank=True, null=True)),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('approved_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('closed_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('experiment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='requests', to='accounts.experiment')),
                ('submitted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Stage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField()),
                ('name', models.CharField(blank=True, max_length=64)),
                ('release', models.CharField(blank=True, max_length=100)),
                ('configuration', models.CharField(blank=True, max_length=300)),
                ('input_dataset', models.CharField(blank=True, help_text='Empty: the output of the stage before.', max_length=300)),
                ('events', models.BigIntegerField(blank=True, null=True)),
                ('jobs', models.PositiveIntegerField(blank=True, null=True)),
                ('memory_bytes', models.BigIntegerField(blank=True, help_text='Of one job.', null=True)),
                ('wall_seconds', models.PositiveIntegerField(blank=True, help_text='Of one job.', null=True)),
                ('output_dataset', models.CharField(blank=True, max_length=300)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='stages', to='production.request')),
                ('services', models.ManyToManyField(blank=True, related_name='stages', to='statusboard.service')),
            ],
            options={
                'ordering': ['request', 'position'],
            },
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
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['draft', 'submitted', 'changes_asked', 'approved', 'rejected', 'withdrawn', 'done'])), name='request_state'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('requested_priority__in', ['low', 'normal', 'high', 'urgent'])), name='request_requested_priority'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('priority', None), ('priority__lte', 1000), _connector='OR'), name='request_priority'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('submitted_at__isnull', False), ('submitted_by__isnull', False), ('state__in', ['submitted', 'changes_asked', 'approved', 'rejected', 'done', 'withdrawn'])), models.Q(('submitted_at__isnull', True), ('submitted_by__isnull', True), ('state__in', ['draft', 'withdrawn'])), _connector='OR'), name='request_submitted_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approved_at__isnull', False), ('approved_by__isnull', False), ('state__in', ['approved', 'done', 'withdrawn'])), models.Q(('approved_at__isnull', True), ('approved_by__isnull', True), ('state__in', ['draft', 'submitted', 'changes_asked', 'rejected', 'withdrawn'])), _connector='OR'), name='request_approved_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', False), ('closed_by__isnull', False), ('state__in', ['done', 'rejected', 'withdrawn'])), models.Q(('closed_at__isnull', True), ('closed_by__isnull', True), ('state__in', ['draft', 'submitted', 'changes_asked', 'approved'])), _connector='OR'), name='request_closed_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('approved_by', None), models.Q(('approved_by', models.F('created_by')), ('approved_by', models.F('submitted_by')), _connector='OR', _negated=True), _connector='OR'), name='request_approver_is_not_requester'),
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
    ]
