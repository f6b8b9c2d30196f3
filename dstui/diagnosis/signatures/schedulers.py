"""Signatures of what happens before a job's script runs: a scheduler's or a cloud's refusal, images, pods and their volumes."""

from __future__ import annotations

from dstui.diagnosis.signature import Signature, rx

SIGNATURES = (
    Signature(
        "SUBMIT-REFUSED",
        "root",
        "SLURM refused the job, so nothing started",
        "The partition, account, QOS or time limit does not allow it, or no node has what it asks for; SLURM's own words say which.",
        (
            rx("Batch job submission failed", r"sbatch: error: Batch job submission failed: "),
            rx("allocat", r"(?:srun|salloc): error: (?:Unable to allocate resources|Job submit/allocate failed): "),
            rx("Unable to create step", r"srun: error: Unable to create step for job \d+: "),
        ),
        ("Ask for less, or for another partition, account or QOS (cluster.slurm): sinfo, sacctmgr show assoc user=$USER",),
        "sbatch --test-only with the same options, or dstui check, which asks SLURM.",
        launcher=True,
        alone=True,
        alike=("SLURM-CANCEL",),
    ),
    Signature(
        "CONTAINER-BUILD",
        "root",
        "A step of the container image's build failed",
        "The command of that step ended with an error, which is above.",
        (
            rx("returned a non-zero code", r"The command '.{0,400}' returned a non-zero code: \d"),
            rx("did not complete successfully", r"failed to (?:solve|build).*did not complete successfully: exit code: \d"),
            rx("failed to run step ID", r"failed to run step ID: \S+ exit status \d"),  # Azure's registry
            rx("error building image", r"error building image: error building stage"),  # kaniko
        ),
        (
            "Read the output of that step above: the last error is there",
            "Build up to the step before it, and run its command by hand in that image: docker run -it IMAGE sh",
        ),
        "docker build --progress=plain --no-cache shows the whole output of the step.",
        launcher=True,
        alone=True,
        sure=False,
        alike=("CONTAINER", "IMPORT-MISSING"),
        answer="REMOTE-ENV",
    ),
    Signature(
        "POD-VOLUME",
        "root",
        "Kubernetes could not mount a volume of the pod",
        "The file server refuses this node or does not answer, the claim is not bound, or a secret or config map does not exist.",
        (
            rx("SetUp failed for volume", r"MountVolume\.\w+ failed for volume"),
            rx("Unable to attach or mount volumes", r"Unable to attach or mount volumes"),
        ),
        (
            "Read the words after it: they are the file server's own (access denied: let it export the folder to the nodes of the cluster)",
            "kubectl get pvc,secret,configmap: what the pod names must be there, and the claim Bound",
        ),
        "kubectl describe pod POD, and the same mount by hand on that node.",
        launcher=True,
        alone=True,
        sure=False,
        alike=("CKPT-PERM", "CONTAINER"),
        answer="REMOTE-ENV",
    ),
    Signature(
        "POD-RESTARTS",
        "hint",
        "The container of the pod ends again and again, and its own log says why",
        signs=(rx("CrashLoopBackOff", r"\bCrashLoopBackOff\b"), rx("Back-off restarting", r"Back-off restarting failed container")),
        confirm="kubectl logs --previous POD, and Last State in kubectl describe pod POD: the exit code and the reason.",
    ),
    Signature(
        "POD-PENDING",
        "root",
        "Kubernetes found no node for the pod",
        "The message counts why each node was refused: not enough free GPUs, memory or CPUs (Insufficient …), a taint that the pod does "
        "not tolerate, or a node selector that no node has.",
        (
            rx("nodes are available", r"\b0/\d+ nodes are available: "),
            rx("exceeded quota", r"is forbidden: exceeded quota: "),
        ),
        (
            "Insufficient nvidia.com/gpu: ask for fewer GPUs per pod, or wait until others end",
            "untolerated taint: add the toleration that the message names to the pod",
            "node affinity or selector: compare it with kubectl get nodes --show-labels",
        ),
        "kubectl describe nodes | grep -A8 'Allocated resources', and kubectl get resourcequota.",
        launcher=True,
        alone=True,
        sure=False,
        alike=("CONTAINER",),
        answer="SUBMIT-REFUSED",
    ),
    Signature(
        "QUEUE-REFUSED",
        "root",
        "The scheduler refused the job, so nothing started",
        "The queue does not exist, is not open to this user, or does not allow what the job asks for; the scheduler's own words say which.",
        (
            rx(
                "qsub: ",
                r"^qsub: (?!waiting|job |command)\S.*(?i:unknown|exceed|unauthorized|illegal|invalid|denied|limit|not )",
            ),
            rx("Job not submitted", r"\bJob not submitted\b"),  # LSF
            rx("Unable to run job", r"^Unable to run job: "),  # SGE
        ),
        ("Ask for less, or name another queue or project: qstat -Q (PBS), bqueues -l (LSF), qconf -sql (SGE) list them and their limits",),
        "The same request without the script: qsub -I or bsub -Is with the same options.",
        launcher=True,
        alone=True,
        sure=False,
        alike=("SLURM-CANCEL",),
        answer="SUBMIT-REFUSED",
    ),
    Signature(
        "CLOUD-QUOTA",
        "root",
        "The cloud account may not use that many machines of this kind",
        "Its quota for the type of instance, or for the GPUs of the region, is smaller than what the job asks for; often it is 0.",
        (
            rx("ResourceLimitExceeded", r"ResourceLimitExceeded"),
            rx("account-level service limit", r"account-level service limit"),
            rx("uota", r"exceeding approved .{0,60}[Qq]uota|Quota '\w+' exceeded|\bQUOTA_EXCEEDED\b"),
        ),
        ("Ask the provider for a larger quota of exactly the type that the message names, or use a type or a region that has one",),
        "The page of quotas of the account (AWS Service Quotas, Azure Usage + quotas, Google Cloud IAM quotas), for that type and region.",
        launcher=True,
        alone=True,
        sure=False,
        alike=("CLOUD-CAPACITY",),
        answer="SUBMIT-REFUSED",
    ),
    Signature(
        "CLOUD-CAPACITY",
        "root",
        "The cloud has no such machine free at the moment",
        "The quota allows it, and the zone or region has none left of this type.",
        (
            rx("CapacityError", r"CapacityError: Unable to provision|InsufficientCapacityError"),
            "InsufficientInstanceCapacity",
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            rx("no more capacity in the zone", r"no more capacity in the zone"),
            rx("resources available to fulfill", r"does not have enough resources available to fulfill the request"),
        ),
        ("Try again later, in another zone or region, or with another type of instance; reserved capacity is not taken by others",),
        "The same request in another zone.",
        launcher=True,
        alone=True,
        sure=False,
        alike=("CLOUD-QUOTA",),
        answer="SUBMIT-REFUSED",
    ),
    Signature(
        "RAY-PENDING",
        "root",
        "No node of the Ray cluster has what a task asks for",
        "The task, or a worker of the trainer, asks for more GPUs, CPUs or memory at once than any type of node has.",
        (
            rx("No available node types can fulfill", r"No available node types can fulfill resource request"),
            rx("cannot be scheduled right now", r"actor or task with ID \w+ cannot be scheduled right now"),
        ),
        ("Ask for less per worker (resources_per_worker, num_gpus), or add a type of node that has it to the cluster's configuration",),
        "ray status: what is asked for, and what each node has.",
        launcher=True,
        sure=False,
        alone=True,
        alike=("POD-PENDING",),
        answer="SUBMIT-REFUSED",
    ),
    Signature(
        "KUBEFLOW-LOG",
        "hint",
        "Kubeflow only counts the pods that failed, and their own logs say why",
        signs=(rx("is failed because", r"\b(?:PyTorch|MPI|TF|Train|XGBoost)\w* \S+ is failed because"),),
        confirm="kubectl logs POD of the worker that failed first (kubectl get pods -l training.kubeflow.org/job-name=JOB).",
    ),
)
