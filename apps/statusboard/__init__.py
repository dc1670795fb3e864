"""The services that jobs depend on: status, incidents, planned windows, announcements, monitoring feeds."""
