"""Measures: functions of arrays."""
