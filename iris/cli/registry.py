"""The commands of `iris`: the module and the help line of each, in the order of the help.

`LazyGroup` imports a command's module only when the command is called.
"""

from iris.cli.command import CommandPlace, LazyGroup

# fmt: off
JOB_COMMANDS = {
    "submit": CommandPlace("submit.command", "submit",
        "Run a command on the cluster, and follow it until it ends."),
    "jobs": CommandPlace("jobs.commands", "jobs",
        "List jobs, the newest first."),
    "status": CommandPlace("jobs.status", "status",
        "Show a job and its tasks."),
    "logs": CommandPlace("jobs.logs", "logs",
        "Show the output of a job's tasks."),
    "fetch": CommandPlace("jobs.fetch", "fetch",
        "Fetch the output files of a job's tasks."),
    "exec": CommandPlace("jobs.exec", "exec_",
        "Run a command next to a running task."),
    "port-forward": CommandPlace("jobs.port_forward", "port_forward",
        "Forward ports of this machine to a running task."),
    "endpoints": CommandPlace("jobs.endpoints", "endpoints",
        "List the addresses that a job's tasks have made known."),
    "profile": CommandPlace("jobs.profile", "profile",
        "Profile a running Python program."),
    "wait": CommandPlace("jobs.commands", "wait",
        "Wait until jobs have ended."),
    "cancel": CommandPlace("jobs.cancel", "cancel",
        "Cancel jobs."),
    "rerun": CommandPlace("jobs.rerun", "rerun",
        "Submit a job again, or only its failed tasks."),
    "explain": CommandPlace("jobs.status", "explain",
        "Explain the state of a job."),
    "hold": CommandPlace("jobs.commands", "hold",
        "Hold jobs: start none of their tasks until they are released."),
    "release": CommandPlace("jobs.commands", "release",
        "Release held jobs."),
    "open": CommandPlace("jobs.open", "open_",
        "Open a job's page in Temporal's Web UI."),
    "priority": CommandPlace("jobs.commands", "priority",
        "Move jobs to another priority band."),
}
#: The commands of `iris job`. `iris jobs` is `iris job list` in this group, and `iris status` is
#: `iris job show`, as in the other groups (`iris host list`, `iris host show`).
_JOB_GROUP = {
    **{{"jobs": "list", "status": "show"}.get(name, name): place
       for name, place in JOB_COMMANDS.items()},
    "check": CommandPlace("submit.check", "check",
        "Check a job file. Contacts no cluster."),
    "schema": CommandPlace("submit.check", "schema",
        "Print the JSON schema of job files, for editors."),
}
_HOST_GROUP = {
    "list": CommandPlace("fleet.host", "list_hosts",
        "List hosts: their resources, free resources and tasks, and why some take no new tasks."),
    "show": CommandPlace("fleet.host", "show",
        "Show HOST: its resources, attributes and tasks, and why it takes no new tasks."),
    "cordon": CommandPlace("fleet.host", "cordon",
        "Place no new tasks on each HOST."),
    "uncordon": CommandPlace("fleet.host", "uncordon",
        "Place new tasks on each HOST again, also after a drain or a quarantine."),
    "drain": CommandPlace("fleet.host", "drain",
        "Place no new tasks on each HOST and evict its tasks."),
    "add": CommandPlace("fleet.host_machines", "add",
        "Add each MACHINE over SSH to a scale group: to the configuration file, and to the cluster"
        " if it runs."),
    "remove": CommandPlace("fleet.host_machines", "remove",
        "Remove each MACHINE over SSH from the cluster and from its configuration file, and leave"
        " it as it was before."),
    "ssh": CommandPlace("fleet.host_ssh", "ssh",
        "Log in to HOST, a machine over SSH, or run COMMAND there."),
}
_AUTOSCALER_GROUP = {
    "status": CommandPlace("fleet.autoscaler", "status",
        "Show each scale group with its slices, its demand and what limits it, and the last"
        " actions."),
    "pause": CommandPlace("fleet.autoscaler", "pause",
        "Stop creating and deleting slices."),
    "resume": CommandPlace("fleet.autoscaler", "resume",
        "Resume creating and deleting slices."),
    "advise": CommandPlace("simulate.advise", "advise",
        "Look for small changes of a configuration that shorten waits, or save money."),
}
_CLUSTER_GROUP = {
    "start": CommandPlace("cluster.start", "start",
        "Start a cluster."),
    "stop": CommandPlace("cluster.lifecycle", "stop",
        "Delete all slices of a cluster, and stop it."),
    "restart": CommandPlace("cluster.lifecycle", "restart",
        "Restart the control plane of a cluster, and wait until it answers."),
    "reload": CommandPlace("cluster.lifecycle", "reload_",
        "Apply another configuration to a cluster."),
    "list": CommandPlace("cluster.commands", "list_clusters",
        "List the clusters that were started from here."),
    "status": CommandPlace("cluster.commands", "status",
        "Show a cluster: its location, hosts, slices and jobs, and what blocks it."),
    "pause": CommandPlace("cluster.commands", "pause",
        "Place no new tasks."),
    "resume": CommandPlace("cluster.commands", "resume",
        "Place new tasks again."),
    "tunnel": CommandPlace("cluster.commands", "tunnel",
        "Open a tunnel to a cluster in a cloud, and show its local address."),
    "dashboard": CommandPlace("cluster.dashboard", "dashboard",
        "Open the dashboard of a cluster: web pages about its jobs and machines."),
    "init": CommandPlace("cluster.init", "init",
        "Write the configuration of a cluster of existing machines."),
    "config": CommandPlace("cluster.config", "config",
        "Check and show configuration files."),
    "validate": CommandPlace("cluster.validate", "validate",
        "Run three small jobs on TPU slices, and check that every host answers correctly."),
    "cleanup": CommandPlace("cluster.cleanup", "cleanup",
        "Find and delete the remains of clusters: machines without an owner, and processes and"
        " directories of dead clusters."),
    "gc": CommandPlace("cluster.gc", "gc",
        "Find and delete the files of ended jobs in the store: logs, outputs, checkpoints,"
        " workspaces, and files of pools."),
}
#: All commands of `iris`.
COMMANDS = {
    **JOB_COMMANDS,
    "job": CommandPlace("registry", "job",
        "The commands above by the name of their noun: list, show, logs and so on."),
    "top": CommandPlace("top", "top",
        "Show the cluster, its scale groups and your jobs, and keep them up to date."),
    "usage": CommandPlace("usage", "usage",
        "Show who used the cluster and what it cost, or what a job used over time."),
    "simulate": CommandPlace("simulate.command", "simulate",
        "Simulate a workload on a configuration: waits, machines and cost, before you pay."),
    "watch": CommandPlace("watch", "watch",
        "Run a reading command again and again."),
    "schedule": CommandPlace("submit.schedule", "schedule",
        "Start a job again and again, at times or in intervals."),
    "secret": CommandPlace("secret", "secret",
        "Keep secrets for your jobs: sealed for the cluster before they leave this machine."),
    "cluster": CommandPlace("registry", "cluster",
        "Start, stop, show and pause clusters."),
    "autoscaler": CommandPlace("registry", "autoscaler",
        "Show, pause and resume the autoscaler, and look for better settings."),
    "group": CommandPlace("fleet.group", "group",
        "Show scale groups: the kinds of slice that a cluster can have."),
    "quota": CommandPlace("fleet.quota", "quota",
        "Show quotas: what users, teams and tagged jobs may hold at once."),
    "slice": CommandPlace("fleet.slice", "slice_",
        "List, show, drain and delete slices."),
    "host": CommandPlace("registry", "host",
        "List, cordon, uncordon and drain hosts, and log in to them."),
    "ssh-config": CommandPlace("fleet.host_ssh", "print_ssh_config",
        "Print ssh's configuration for a cluster's machines over SSH."),
    "debug": CommandPlace("cluster.debug", "debug",
        "Find faults in a cluster."),
    "controller": CommandPlace("processes.controller", "controller",
        "Run a control plane."),
    "agent": CommandPlace("processes.agent", "agent",
        "Run this machine as a host."),
    "pool-worker": CommandPlace("processes.pool_worker", "pool_worker",
        "Run the calls of a Python program's pool; its jobs do this."),
    "config": CommandPlace("which_cluster", "config",
        "Show which cluster and user commands use, and why."),
    "completion": CommandPlace("completion", "completion",
        "Print the script that lets a shell complete commands and names."),
    "version": CommandPlace("version", "show_version",
        "Show the versions of Iris here and in a cluster, and whether they fit."),
}
# fmt: on
#: Further names of commands, which other tools use for the same commands.
ALIASES = {"ps": "jobs", "kill": "cancel"}

job = LazyGroup(
    "job",
    table=_JOB_GROUP,
    help=(
        "List, show, submit, follow and cancel jobs. `iris jobs`, `iris status` and so on are the"
        " same commands."
    ),
)
host = LazyGroup(
    "host",
    table=_HOST_GROUP,
    help=(
        "List, show, cordon, uncordon and drain hosts; add, remove and log in to machines over SSH."
    ),
)
autoscaler = LazyGroup(
    "autoscaler",
    table=_AUTOSCALER_GROUP,
    help="Show, pause and resume the autoscaler, and look for better settings.",
)
cluster = LazyGroup("cluster", table=_CLUSTER_GROUP, help="Start, stop, show and pause clusters.")
