"""The sink that writes to Elasticsearch 8 and 9; docs/elasticsearch.md."""
