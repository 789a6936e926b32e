"""What users write as labels: candidate sets and votes."""
