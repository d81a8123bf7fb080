"""A bookie for other processes of one Geminga on one machine: runs cross as wholes (spec CL-15)."""
