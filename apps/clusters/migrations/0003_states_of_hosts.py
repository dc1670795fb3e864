from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0002_help_texts"),
    ]

    operations = [
        migrations.AddField(
            model_name="host",
            name="booted_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="host",
            name="reason",
            field=models.CharField(blank=True, db_default="", default="", max_length=500),
        ),
        migrations.AddField(
            model_name="host",
            name="state",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Empty: unknown.", max_length=16
            ),
        ),
        migrations.AddField(
            model_name="host",
            name="state_words",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The state as the scheduler words it.",
                max_length=128,
            ),
        ),
    ]
