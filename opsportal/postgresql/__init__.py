"""Django's backend for PostgreSQL, for servers of which another may take over."""
