from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("production", "0004_hold_of_portal"),
    ]

    operations = [
        migrations.AddField(
            model_name="stagehistory",
            name="memory_bytes_99",
            field=models.FloatField(
                blank=True,
                help_text="99 % of the completed jobs used at most this memory.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="stagehistory",
            name="wall_seconds_99",
            field=models.FloatField(
                blank=True,
                help_text="99 % of the completed jobs took at most this long.",
                null=True,
            ),
        ),
    ]
