"""What was computed from jobs and logs in an older form is computed again: profiles of groups, samples of successes."""

from django.db import migrations


def forget(apps, schema_editor):
    apps.get_model('diagnosis', 'FailureGroup').objects.exclude(profiled_at=None).update(profile=[], profiled_at=None)
    apps.get_model('diagnosis', 'SuccessSample').objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [('diagnosis', '0001_initial')]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop, elidable=True)]
