"""One script per question; each prints both sides and ends with the ratios."""
