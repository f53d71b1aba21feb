"""The controller's process: world.py sees, controller.py acts on what plan/ decides, election.py says who may."""
