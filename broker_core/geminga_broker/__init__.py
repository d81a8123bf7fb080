"""The broker: topics, subscriptions, dispatch, sessions, administration (spec BR)."""
