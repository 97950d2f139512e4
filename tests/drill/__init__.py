"""The drill: kill -9 at random moments, again and again, and compare what is left with an undisturbed run."""
