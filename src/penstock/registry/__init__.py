"""The schema registry: schemas, subjects, what may follow what. It knows no protocol and no loop."""
