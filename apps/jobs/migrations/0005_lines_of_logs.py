from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_live_arrays"),
    ]

    operations = [
        migrations.AlterField(
            model_name="dirtyhour",
            name="counts",
            field=models.CharField(
                choices=[
                    ("jobs", "Jobs"),
                    ("causes", "Failures by cause"),
                    ("phases", "Phases"),
                    ("lines", "Lines of logs"),
                ],
                default="jobs",
                max_length=8,
            ),
        ),
    ]
