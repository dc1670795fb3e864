"""`opsportal setup`: from an installed package to a portal with settings, database and admin.

It runs before there are settings, so nothing here imports Django. What needs Django runs as a
process of its own, with the settings that were written.
"""
