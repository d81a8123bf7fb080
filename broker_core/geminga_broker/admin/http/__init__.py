"""What HTTP as such is answered, whatever a path means: methods, unknown paths, types of bodies."""
