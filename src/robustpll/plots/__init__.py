"""Figures as functions of arrays: nothing is trained or read here."""
