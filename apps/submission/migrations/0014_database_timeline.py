from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('submission', '0013_defaults_in_database'),
    ]

    operations = [
        migrations.AddField(
            model_name='knowndatabase',
            name='timeline',
            field=models.PositiveIntegerField(blank=True, help_text="PostgreSQL's timeline, which changes with a failover or a restore to a moment.", null=True),
        ),
    ]
