from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('production', '0006_hold_by_help_text'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='requestlink',
            name='link_kind',
        ),
        migrations.AddField(
            model_name='datasetpart',
            name='is_held',
            field=models.BooleanField(default=False),
        ),
        migrations.AlterField(
            model_name='requestlink',
            name='kind',
            field=models.CharField(choices=[('combined', 'combined into'), ('split', 'split into'), ('recovered', 'missing files requested in')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='requestlink',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['combined', 'split', 'recovered'])), name='link_kind'),
        ),
        migrations.AddIndex(
            model_name='stage',
            index=models.Index(condition=models.Q(('input_dataset', ''), _negated=True), fields=['input_dataset'], name='stage_reads'),
        ),
    ]
