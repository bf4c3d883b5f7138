"""The engine of the read side: projections, catch-up, rebuild and comparison."""
