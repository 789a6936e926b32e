"""Reading tables of people: columns, labels, and checks."""
