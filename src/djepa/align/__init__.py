"""Decision alignment: outcomes of executed candidates correct a world model's ranking."""
