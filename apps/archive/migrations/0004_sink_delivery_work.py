from django.db import migrations, models

# Batches that no worker has claimed are due since they were captured; the others, at once.
FILL = """
update archive_sinkdelivery set due_at = coalesce(
    due_at, (select captured_at from archive_intakebatch where id = batch_id)
)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('archive', '0003_capture_choice'),
    ]

    operations = [
        migrations.RenameField(model_name='sinkdelivery', old_name='claimed_at', new_name='due_at'),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='sinkdelivery',
            name='due_at',
            field=models.DateTimeField(help_text='When it is tried next or, while a worker has it, when it counts as lost.'),
        ),
        migrations.AlterField(
            model_name='sinkdelivery',
            name='attempts',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='sinkdelivery',
            name='last_error',
            field=models.TextField(blank=True),
        ),
    ]
