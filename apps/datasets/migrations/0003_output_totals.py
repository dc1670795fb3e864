import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0002_ledger_of_files'),
        ('production', '0006_hold_by_help_text'),
    ]

    operations = [
        migrations.CreateModel(
            name='OutputTotals',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('files', models.PositiveIntegerField(default=0, help_text='Reported files, counting or not.')),
                ('counting_files', models.PositiveIntegerField(default=0, help_text='Those that count.')),
                ('counting_events', models.BigIntegerField(default=0)),
                ('counting_bytes', models.BigIntegerField(default=0)),
                ('revision', models.PositiveBigIntegerField(default=0)),
                ('stage', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='output_totals', to='production.stage')),
            ],
            options={
                'verbose_name_plural': 'output totals',
            },
        ),
    ]
