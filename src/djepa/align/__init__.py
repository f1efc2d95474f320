"""Decision alignment: learn from outcomes how the candidates of one decision relate."""
