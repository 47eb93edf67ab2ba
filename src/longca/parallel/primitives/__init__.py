"""The parts that methods are composed of: local attention, split heads, rings, gathered keys."""
