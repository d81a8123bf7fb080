"""Routes under `/admin/v2/namespaces/…`: namespaces, their policies, quotas and permissions."""
