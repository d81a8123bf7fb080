"""Why a subscription gets nothing (spec OP-12)."""
