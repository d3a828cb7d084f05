"""The service over HTTP: routes, schemas, problem details, authentication. Knows no formulas."""
