"""Templates of lines leave out the names of days and months: successes are sampled again."""

from django.db import migrations


def forget(apps, schema_editor):
    apps.get_model("diagnosis", "SuccessSample").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [("diagnosis", "0009_completed_logs")]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop, elidable=True)]
