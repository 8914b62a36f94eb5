"""Whether views differ beyond noise: the exact randomisation test within items."""
