"""The commands of `geminga admin`, a module for each family, or for a part of it."""
