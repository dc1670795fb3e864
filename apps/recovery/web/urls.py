from datetime import date

from django.urls import path, register_converter

from apps.recovery.web import views


class Day:
    """A day in an address, such as 2026-11-23."""

    regex = r"\d{4}-\d{2}-\d{2}"

    def to_python(self, value: str) -> date:
        day = date.fromisoformat(value)
        if not 2000 <= day.year <= 2100:
            raise ValueError(f"{value} is not a day of this century")
        return day

    def to_url(self, value: date) -> str:
        return value.isoformat()


register_converter(Day, "day")

app_name = "recovery"
urlpatterns = [
    path("recovery/", views.rules, name="rules"),
    path("recovery/new/", views.new_rule, name="new"),
    path("recovery/rules/<int:pk>/", views.rule, name="rule"),
    path("recovery/rules/<int:pk>/edit/", views.edit_rule, name="edit"),
    path("recovery/rules/<int:pk>/mode/", views.switch_rule, name="mode"),
    path("recovery/rules/<int:pk>/move/", views.move, name="move"),
    path("recovery/rules/<int:pk>/decisions/", views.decisions, name="decisions"),
    path("recovery/weeks/<day:monday>/", views.week, name="week"),
    path("recovery/questions/", views.questions, name="questions"),
    path("recovery/jobs/<int:pk>/", views.explain_job, name="job"),
]
