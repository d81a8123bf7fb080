"""Dispatch: pure choosers and the pump that carries out what they chose."""
