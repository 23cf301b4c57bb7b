"""The contest: two real data sets from packages, two recipes, five seeds, every rival."""
