from django.db import migrations

#: The first stage has a job for each file; of the others that is found out by the first check.
COPY_FILES = """
INSERT INTO datasets_inputfile
    (stage_id, name, number, state, is_doubled, reason, decided_by, changed_at)
SELECT stage.id, file.name, file.job,
    CASE stage.position WHEN 0 THEN 'taken' ELSE 'waiting' END, false, '', '', file.taken_at
FROM submission_takenfile AS file
JOIN production_stage AS stage ON stage.request_id = file.request_id
ORDER BY stage.id, file.id;

INSERT INTO datasets_filetotals
    (stage_id, files, waiting, taken, done, failed, given_up, doubled, listed_at)
SELECT stage_id, count(*), count(*) FILTER (WHERE state = 'waiting'),
    count(*) FILTER (WHERE state = 'taken'), 0, 0, 0, 0, max(changed_at)
FROM datasets_inputfile GROUP BY stage_id;
"""


class Migration(migrations.Migration):
    """Files of keep-up requests become part of the ledger of the app datasets."""

    dependencies = [
        ('datasets', '0002_ledger_of_files'),
        ('submission', '0008_scouts_measure'),
    ]

    operations = [
        migrations.RunSQL(COPY_FILES, migrations.RunSQL.noop),
        migrations.DeleteModel(
            name='TakenFile',
        ),
    ]
