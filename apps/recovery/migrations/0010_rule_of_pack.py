from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0002_acted_again")]

    operations = [
        migrations.AddField(
            model_name="recoveryrule",
            name="of_pack",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="The pack of its experiment declares it.",
            ),
        ),
    ]
