from opsctl.cli import main

main(prog_name="opsctl")
