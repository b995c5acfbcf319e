"""The test suite's own pytest plugins: tiers and their budget, the machine's speed, leftovers, and reports of failures."""
