from apps.core.admin import register_read_only
from apps.search.models import (
    JobTemplates,
    LineTemplate,
    LineWatch,
    LogIndex,
    LogToIndex,
    LogWords,
    ReadLogs,
    TemplateTotals,
)

register_read_only(
    LineTemplate,
    "text experiment names_error first_seen_at first_site spread_at",
    search="text",
    filters=["experiment", "names_error"],
)
register_read_only(
    JobTemplates,
    "job ended_at failed read_at",
    filters=["failed"],
    list_select_related=["job__cluster"],
    exclude=["templates"],
)
register_read_only(
    TemplateTotals, "hour template stage failed good", list_select_related=["template"]
)
register_read_only(ReadLogs, "hour experiment stage failed good", filters=["experiment"])
register_read_only(
    LogWords, "job ended_at", list_select_related=["job__cluster"], exclude=["words"]
)
register_read_only(LogIndex, "target generation serving complete indexed indexed_at last_error")
register_read_only(
    LogToIndex,
    "job due_at attempts last_error",
    list_select_related=["job__cluster"],
    about="A job whose kept logs are new, and not searchable yet.",
)
register_read_only(
    LineWatch,
    "user number created_at notified_at",
    search="user__username",
    list_select_related=["user"],
)
