"""Machine code as data: cubins, their disassembly, and where the marked regions ended up in it."""
