from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("submission", "0005_plain_help_texts"),
    ]

    operations = [
        migrations.AddField(
            model_name="submission",
            name="release_requested_at",
            field=models.DateTimeField(
                blank=True, help_text="When the release of its held jobs was requested.", null=True
            ),
        ),
    ]
