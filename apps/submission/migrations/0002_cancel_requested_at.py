from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("submission", "0001_initial")]

    operations = [
        migrations.RenameField("submission", "cancel_asked_at", "cancel_requested_at"),
    ]
