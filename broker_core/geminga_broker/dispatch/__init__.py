"""Dispatch: pure choosers, one pump per subscription (spec BR-30 to BR-33).

A round reads entries, asks a chooser who gets which, and writes once per consumer.
"""
