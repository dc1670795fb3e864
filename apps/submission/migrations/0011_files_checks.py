import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('production', '0008_part_indexes'),
        ('submission', '0010_listing_error'),
    ]

    operations = [
        migrations.CreateModel(
            name='FilesCheck',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.PositiveIntegerField()),
                ('error', models.TextField(blank=True, help_text='Why the files cannot be listed or divided. Empty: they can.')),
                ('checked_at', models.DateTimeField()),
                ('request', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='files_check', to='production.request')),
            ],
        ),
    ]
