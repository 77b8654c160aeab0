"""Fuzz tests: seeded cases of hostile input and of relations, and the contract that they check.

``make fuzz N=20000`` runs many cases with a fresh seed; `test_fuzz.py` runs some with a fixed one.
A case belongs to a domain (`fuzz.domains`) and depends only on its number:
``make fuzz CASE=estimators:123`` runs it again.
"""
