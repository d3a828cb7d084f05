"""What suites of all levels are made of: databases, services, noise that is told, clients that forge."""
