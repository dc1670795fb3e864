import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0005_staging_requests'),
        ('production', '0007_recoveries'),
    ]

    operations = [
        migrations.AddField(
            model_name='filetotals',
            name='source',
            field=models.ForeignKey(blank=True, help_text='The earlier stage whose output files are the input files of this one.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='merges', to='production.stage'),
        ),
        migrations.AddField(
            model_name='inputfile',
            name='is_withdrawn',
            field=models.BooleanField(db_default=False, default=False, help_text='It no longer counts in the earlier stage, but a job was to read it before.'),
        ),
        migrations.AddField(
            model_name='inputfile',
            name='source_number',
            field=models.PositiveIntegerField(blank=True, help_text='Number of the job of the earlier stage that wrote it.', null=True),
        ),
        migrations.AddIndex(
            model_name='inputfile',
            index=models.Index(condition=models.Q(('source_number__isnull', False)), fields=['stage', 'source_number'], name='input_file_of_source'),
        ),
        migrations.AddIndex(
            model_name='inputfile',
            index=models.Index(condition=models.Q(('is_withdrawn', True)), fields=['stage', 'id'], name='input_file_withdrawn'),
        ),
    ]
