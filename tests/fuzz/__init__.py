"""The attack on volmar as a test: seeded cases of hostile input, and the contract they check.

``make fuzz N=20000`` runs many cases with a fresh seed; `test_fuzz.py` runs some with a fixed one.
A case belongs to a domain (`fuzz.domains`) and is drawn from its number alone, so that
``make fuzz CASE=estimators:123`` runs it again.
"""
