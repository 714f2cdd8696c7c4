from surefoot.cli import entry

entry()
