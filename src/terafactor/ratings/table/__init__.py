"""Tables of ratings: ids, opening, splitting."""
