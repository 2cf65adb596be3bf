"""Google Cloud: TPU slices, queued resources, virtual machines, and the control plane's own. All of `google` is imported below
here."""
