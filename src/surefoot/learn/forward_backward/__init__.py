"""Forward-backward representations: one policy pi(o, z) for many rewards, goals and motions, asked by a vector z."""
