"""The HTTP face: routes, schemas, problem details, authentication. Knows no formulas."""
