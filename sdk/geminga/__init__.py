"""Geminga: a Pulsar client for Trio (spec SDK)."""
