"""The official clients, run against Geminga and, to prove the tests themselves, against Apache."""
