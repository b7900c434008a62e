"""Optional speed-up of the physics on CPUs: without this folder everything works, 11 % slower."""
