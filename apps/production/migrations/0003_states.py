"""A request is checked, queued, tested, produced, held, and its data looked at."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def rename_states(apps, schema_editor):
    """Requests that waited to be approved, were in the queue, or were withdrawn keep their place."""
    requests = apps.get_model("production", "Request").objects
    for old, new in (("submitted", "awaiting_approval"), ("approved", "queued"), ("withdrawn", "cancelled")):
        requests.filter(state=old).update(state=new)


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_cluster_logins'),
        ('production', '0002_workflows'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='request',
            name='request_state',
        ),
        migrations.RemoveConstraint(
            model_name='request',
            name='request_submitted_pair',
        ),
        migrations.RemoveConstraint(
            model_name='request',
            name='request_approved_pair',
        ),
        migrations.RemoveConstraint(
            model_name='request',
            name='request_closed_pair',
        ),
        migrations.AddField(
            model_name='request',
            name='held_from',
            field=models.CharField(blank=True, help_text='The state to which a held request goes back.', max_length=24),
        ),
        migrations.AddField(
            model_name='request',
            name='superseded_by',
            field=models.ForeignKey(blank=True, help_text='Takes its place.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='supersedes', to='production.request'),
        ),
        migrations.AlterField(
            model_name='request',
            name='state',
            field=models.CharField(choices=[('draft', 'draft'), ('submitted', 'submitted'), ('checking', 'being checked'), ('changes_asked', 'changes asked'), ('awaiting_approval', 'awaiting approval'), ('approved', 'approved'), ('queued', 'queued'), ('testing', 'in test'), ('running', 'running'), ('held', 'held'), ('completing', 'completing'), ('data_quality', 'data quality'), ('done', 'done'), ('done_partial', 'done in part'), ('rejected', 'rejected'), ('cancelled', 'cancelled'), ('superseded', 'superseded')], default='draft', max_length=24),
        ),
        migrations.RunPython(rename_states, migrations.RunPython.noop),
        # What was changed above is checked before the constraints below are made.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['draft', 'submitted', 'checking', 'changes_asked', 'awaiting_approval', 'approved', 'queued', 'testing', 'running', 'held', 'completing', 'data_quality', 'done', 'done_partial', 'rejected', 'cancelled', 'superseded'])), name='request_state'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('submitted_at__isnull', False), ('submitted_by__isnull', False), ('state__in', ['submitted', 'checking', 'awaiting_approval', 'approved', 'queued', 'testing', 'running', 'held', 'completing', 'data_quality', 'done', 'done_partial', 'changes_asked', 'rejected', 'cancelled', 'superseded'])), models.Q(('submitted_at__isnull', True), ('submitted_by__isnull', True), ('state__in', ['draft', 'cancelled', 'superseded'])), _connector='OR'), name='request_submitted_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approved_at__isnull', False), ('approved_by__isnull', False), ('state__in', ['approved', 'queued', 'testing', 'running', 'held', 'completing', 'data_quality', 'done', 'done_partial', 'cancelled', 'superseded'])), models.Q(('approved_at__isnull', True), ('approved_by__isnull', True), ('state__in', ['draft', 'submitted', 'checking', 'changes_asked', 'awaiting_approval', 'rejected', 'cancelled', 'superseded'])), _connector='OR'), name='request_approved_pair'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('closed_at__isnull', False), ('state__in', ['cancelled', 'done', 'done_partial', 'rejected', 'superseded'])), models.Q(models.Q(('state__in', ['cancelled', 'done', 'done_partial', 'rejected', 'superseded']), _negated=True), ('closed_at', None), ('closed_by', None)), _connector='OR'), name='request_closed'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'held'), models.Q(('held_from', ''), _negated=True)), models.Q(models.Q(('state', 'held'), _negated=True), ('held_from', '')), _connector='OR'), name='request_held_from'),
        ),
        migrations.AddConstraint(
            model_name='request',
            constraint=models.CheckConstraint(condition=models.Q(('superseded_by', None), ('state', 'superseded'), _connector='XOR'), name='request_superseded_by'),
        ),
    ]
