"""Job records from the clusters' accounting, the collector that fetches them, and the totals counted from them."""
