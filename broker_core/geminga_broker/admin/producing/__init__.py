"""Messages published over REST: `/topics/{domain}/{tenant}/{namespace}/{topic}`."""
