from django.db import migrations


class Migration(migrations.Migration):
    """Output files become a model of the app datasets, which renames the table."""

    dependencies = [
        ('quality', '0002_evaluated_runs'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(
                    name='OutputFile',
                ),
            ],
        ),
    ]
