"""What sessions and releases would buy: one planner of each kind, which makes an offer from public facts."""
