"""The guided tour: the main job from recording to an offline receipt, on a bundled model server."""
