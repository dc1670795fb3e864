"""Status of the services that jobs depend on: incidents, maintenance windows, announcements,
monitoring feeds.
"""
