"""Routes under `/admin/v2/{domain}/…`: topics, their partitions, subscriptions and policies."""
