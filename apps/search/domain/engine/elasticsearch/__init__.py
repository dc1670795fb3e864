"""The index of logs in Elasticsearch: one document for each job, in an index for each month."""
