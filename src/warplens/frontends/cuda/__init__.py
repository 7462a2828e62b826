"""How `warplens.cuda` reaches the driver, compiles, launches and copies records back."""
