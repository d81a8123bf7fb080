"""The processes of `geminga standalone --brokers N`: a parent with metadata store and bookie, and
its brokers (spec CL-15, decision 37).
"""
