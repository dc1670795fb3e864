"""The API's router, version and schema. Owns no models."""
