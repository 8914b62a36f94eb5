"""A run on disk: its folder, generations, rows and beats; what is read back, and from strangers."""
