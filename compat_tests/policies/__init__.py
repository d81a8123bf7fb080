"""Every policy of Apache's broker, declared once: its REST calls, its levels, its effect."""
