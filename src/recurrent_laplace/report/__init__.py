"""Reports: figures, verdicts on claims, and HTML pages from run directories."""
