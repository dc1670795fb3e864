"""The API's router, version and schema, and the keys of calls that are to be made once."""
