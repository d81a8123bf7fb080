"""Frames recorded between Apache's client and Apache's broker, replayed through our codec."""
