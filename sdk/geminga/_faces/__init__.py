"""What the blocking and the asyncio face share: a Trio loop in a background thread, and the queues
between it and the program's threads (spec SDK-45). Private.
"""
