"""What the health pages and the metrics show: processes, queues, plugins and storage."""
