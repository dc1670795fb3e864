"""The client for all outgoing requests of the portal, and the limits that each of them has."""
