"""Who a peer is: providers of authentication for every server of ours (spec PX-20, PX-21)."""
