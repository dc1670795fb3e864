from django.db import migrations

GUARD = """
create function core_event_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'events are append-only';
end $$;
create trigger core_event_append_only before update or delete on core_event
    for each row execute function core_event_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("core", "0001_initial")]

    operations = [
        migrations.RunSQL(
            GUARD, "drop trigger core_event_append_only on core_event; drop function core_event_is_append_only();"
        ),
    ]
