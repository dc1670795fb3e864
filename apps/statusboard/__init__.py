"""Status of the services that jobs depend on.

Incidents, maintenance windows, announcements and monitoring feeds determine it.
"""
