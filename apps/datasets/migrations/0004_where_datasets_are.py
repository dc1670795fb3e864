import django.db.models.expressions
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0003_output_totals'),
    ]

    operations = [
        migrations.AddField(
            model_name='knowndataset',
            name='files_located',
            field=models.BigIntegerField(blank=True, help_text='Files whose replicas the catalogue was asked for.', null=True),
        ),
        migrations.AddField(
            model_name='knowndataset',
            name='files_on_disk',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='knowndataset',
            name='files_on_tape_only',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='knowndataset',
            name='files_without_location',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='knowndataset',
            name='is_frozen',
            field=models.BooleanField(blank=True, help_text='Its list of files can no longer change.', null=True),
        ),
        migrations.AddField(
            model_name='knowndataset',
            name='unlocated_reason',
            field=models.TextField(blank=True, default='', help_text='Why it is unknown where its files are.'),
        ),
        migrations.AddConstraint(
            model_name='knowndataset',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('files_located', None), ('files_on_disk', None), ('files_on_tape_only', None), ('files_without_location', None)), models.Q(('files_located__gte', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('files_on_disk'), '+', models.F('files_on_tape_only')), '+', models.F('files_without_location'))), ('files_located__isnull', False), ('files_on_disk__gte', 0), ('files_on_disk__isnull', False), ('files_on_tape_only__gte', 0), ('files_on_tape_only__isnull', False), ('files_without_location__gte', 0), ('files_without_location__isnull', False), ('unlocated_reason', '')), _connector='OR'), name='known_dataset_places'),
        ),
    ]
