"""Commands of `geminga bookieshell` on one bookie's files, and on cookies (spec BK-11)."""
