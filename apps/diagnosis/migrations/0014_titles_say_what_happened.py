from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

#: Titles of failure groups that said what to do, and what they say now.
TITLES = {
    "Request a longer time limit, or find out why the job is slow": "Killed at the time limit",
    "Set a later deadline, or submit a shorter job": "Killed at the deadline",
    "Request more memory": "Killed for using more memory than requested",
    "Resource limit exceeded: request more": "Resource limit exceeded",
}


def rename_groups(apps: Apps, _editor: BaseDatabaseSchemaEditor) -> None:
    groups = apps.get_model("diagnosis", "FailureGroup").objects
    for former, title in TITLES.items():
        groups.filter(title=former).update(title=title)


class Migration(migrations.Migration):

    dependencies = [
        ('diagnosis', '0013_name_untriaged_groups'),
    ]

    operations = [migrations.RunPython(rename_groups, migrations.RunPython.noop)]
