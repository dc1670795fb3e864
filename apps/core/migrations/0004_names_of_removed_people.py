from django.db import migrations

# Events stay as they are, but for the name of a person who is removed.
GUARD = """
create or replace function core_event_is_append_only() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and current_setting('opsportal.removes_person', true) = 'yes'
        and to_jsonb(new) - 'actor' - 'target_label' = to_jsonb(old) - 'actor' - 'target_label'
    then
        return new;
    end if;
    raise exception 'events are append-only';
end $$;
"""
GUARD_BEFORE = """
create or replace function core_event_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'events are append-only';
end $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("core", "0003_table_sizes"),
    ]

    operations = [
        migrations.RunSQL(GUARD, GUARD_BEFORE),
    ]
