"""The HTTP client for all outgoing requests of the portal, with its limits."""
