"""The load managers that can be chosen, each as decisions on what is known of the load (spec CL-08,
CL-09).
"""
