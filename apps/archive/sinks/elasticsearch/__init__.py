"""The sink that writes to Elasticsearch 8 and 9; see docs/elasticsearch.md."""
