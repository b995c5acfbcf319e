"""Compares the rows that AppStat stores with those that follow from the journal, and writes them again."""
