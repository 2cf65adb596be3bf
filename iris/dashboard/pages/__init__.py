"""The pages of the dashboard: what each shows, as values for its template."""
