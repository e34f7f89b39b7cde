"""Runs untrusted JavaScript. Knows QuickJS; knows no SQL and no workflows."""
