"""Everything that faces what others wrote: official clients, Apache's servers, crashes, speed."""
