from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('submission', '0009_files_move'),
    ]

    operations = [
        migrations.AddField(
            model_name='assignment',
            name='listing_error',
            field=models.TextField(blank=True, help_text='Why the files of a dataset could not be listed. Empty: they could.'),
        ),
        migrations.AddField(
            model_name='assignment',
            name='listing_failed_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='assignment',
            name='listing_tried_at',
            field=models.DateTimeField(blank=True, help_text='When the catalogue was last asked in vain.', null=True),
        ),
    ]
