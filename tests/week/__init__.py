"""A week with a sweep, played as a person would type it. `python -m tests.week` writes its transcript into docs."""
