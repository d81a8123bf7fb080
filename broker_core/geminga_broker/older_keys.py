"""Older names of keys of `broker.conf` that Apache's broker still reads (spec OP-07)."""

from __future__ import annotations

from contextlib import suppress

from geminga_runtime.settings import use_older_keys

CLUSTER = {
    "metadataStoreUrl": ("zookeeperServers",),
    "configurationMetadataStoreUrl": ("configurationStoreServers", "globalZookeeperServers"),
    "metadataStoreSessionTimeoutMillis": ("zooKeeperSessionTimeoutMillis",),
}
"""Of a broker with a cluster's metadata store."""

ALL = {"metadataStoreOperationTimeoutSeconds": ("zooKeeperOperationTimeoutSeconds",)}
WEIGHTS_BY_OLDER = {
    "loadBalancerBandwithInResourceWeight": "loadBalancerBandwidthInResourceWeight",
    "loadBalancerBandwithOutResourceWeight": "loadBalancerBandwidthOutResourceWeight",
}
"""Misspelt in Apache's files; they count where the key itself is 1, its default."""


def replace_older(values: dict[str, tuple[str, str]], *, cluster: bool) -> None:
    """Put what stands under older names under the keys of now."""
    if cluster:
        use_older_keys(values, CLUSTER)
    use_older_keys(values, ALL)
    for misspelt, key in WEIGHTS_BY_OLDER.items():
        older = values.pop(misspelt, None)
        is_default = False
        with suppress(ValueError):
            is_default = float(values.get(key, ("1", ""))[0].strip() or 1) == 1
        if older is not None and is_default:
            values[key] = older
