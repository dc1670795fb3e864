"""The index of words waits for the transactions that write archived jobs, and for no others."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("archive", "0008_user_index_with_script")]

    operations = [
        # A goal that still waits for its transactions is set anew.
        migrations.RunSQL("UPDATE archive_wordindex SET goal = indexed_to", migrations.RunSQL.noop),
        migrations.RemoveField("wordindex", "goal_xid"),
        migrations.AddField("wordindex", "goal_waits_for", models.JSONField(default=list)),
    ]
