"""The search plan: training of earlier experiments that new ones can reuse."""
