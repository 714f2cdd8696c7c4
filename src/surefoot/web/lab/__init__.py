"""The lab in a browser: pages of surefoot.lab on a viser server. What is computed is in lab/; here it is drawn."""
