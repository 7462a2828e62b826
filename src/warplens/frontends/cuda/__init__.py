"""How `warplens.cuda` reaches the driver, compiles, launches and brings records home."""
