from django.apps import AppConfig


class ServicesConfig(AppConfig):
    name = "apps.services"
