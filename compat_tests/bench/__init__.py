"""``make bench``: the same load on Geminga and on Apache Pulsar, one after the other."""
