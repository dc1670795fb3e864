from django.apps import AppConfig


class StatusboardConfig(AppConfig):
    name = "apps.statusboard"
