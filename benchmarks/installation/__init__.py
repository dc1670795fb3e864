"""Follow docs/production.md on a bare Debian, from nothing to the first verdict."""
