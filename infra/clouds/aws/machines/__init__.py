"""Node groups and what they need: launch templates, tags, the autoscaler and the device plugins, the drill."""
