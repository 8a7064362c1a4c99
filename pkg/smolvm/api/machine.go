// Package api is the HTTP API of smolvm ("smolvm serve start", as documented for smolvm 1.9.3): its paths, the JSON of
// its requests and answers, its errors, and a client.
//
// What this project adds to it is optional and marked so: a server that does not know a field ignores it, and a client
// does without it.
package api

// State is what a machine is doing.
type State string

// The States.
const (
	// StateCreated means that the machine has never been started.
	StateCreated State = "created"
	// StateRunning means that QEMU runs and the guest's agent answers.
	StateRunning State = "running"
	// StateStopped means that the machine was stopped, or has ended.
	StateStopped State = "stopped"
	// StateFailed means that the machine could not be started again after it had ended.
	StateFailed State = "failed"
	// StateUnreachable means that QEMU runs and the guest's agent does not answer.
	StateUnreachable State = "unreachable"
)

// Defaults of a machine.
const (
	// DefaultCPUs is a number of processors.
	DefaultCPUs = 1
	// DefaultMemoryMB is in MiB.
	DefaultMemoryMB = 512
	// DefaultStorageGB is in GiB.
	DefaultStorageGB = 20
	// DefaultOverlayGB is in GiB.
	DefaultOverlayGB = 10
)

// CreateRequest is the body of POST /api/v1/machines.
type CreateRequest struct {
	// Name is 1 to 128 characters: letters, digits, '_' and '-', with a letter or digit first, no "--" and no '-' last.
	// Empty: the server generates one.
	Name string `json:"name,omitempty"`
	// CPUs is 1 to 255; nil for DefaultCPUs, or see From.
	CPUs *int `json:"cpus,omitempty"`
	// MemoryMB is the memory in MiB, at least 64; nil for DefaultMemoryMB.
	MemoryMB *int64 `json:"memoryMb,omitempty"`
	// StorageGB and OverlayGB are the sizes in GiB of the disks for data and for changes to the image, at least 1; nil for
	// the defaults.
	StorageGB *int64 `json:"storageGb,omitempty"`
	OverlayGB *int64 `json:"overlayGb,omitempty"`
	// Image is a container image. Exactly one of Image and From is set.
	Image string `json:"image,omitempty"`
	// From is the path of a .smolmachine file on the server's host. CPUs and MemoryMB are then those of the file if they are nil.
	From string `json:"from,omitempty"`
	// Entrypoint and Cmd replace those of the image.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	// Env is added to the environment of the image.
	Env []EnvVar `json:"env,omitempty"`
	// Workdir replaces the working directory of the image.
	Workdir string `json:"workdir,omitempty"`
	// Network lets the guest reach others. Ports are published without it, too.
	Network bool `json:"network"`
	// AllowedCIDRs are the only destinations that the guest may reach. Nil: all. Empty: none.
	AllowedCIDRs *[]string `json:"allowedCidrs,omitempty"`
	// Ports are published on the host.
	Ports []Port `json:"ports,omitempty"`
	// Restart is what happens when the machine ends by itself. Nil: nothing.
	Restart *Restart `json:"restart,omitempty"`

	// The following is asked by other clients of smolvm. A server without it refuses it, because it must not be ignored.

	Mounts          []Mount        `json:"mounts,omitempty"`
	NetworkBackend  string         `json:"networkBackend,omitempty"`
	AllowedHosts    *[]string      `json:"allowedHosts,omitempty"`
	RegistryRef     string         `json:"registryRef,omitempty"`
	GPU             bool           `json:"gpu,omitempty"`
	CUDA            bool           `json:"cuda,omitempty"`
	DockerSocket    bool           `json:"dockerSocket,omitempty"`
	Secrets         map[string]any `json:"secrets,omitempty"`
	AutoGraph       bool           `json:"autoGraph,omitempty"`
	RegistryIDToken string         `json:"registryIdentityToken,omitempty"`

	// The following are additions. They are stored and returned.

	// Owner is what the machine belongs to.
	Owner *Owner `json:"owner,omitempty"`
	// SpecHash is the client's digest of what it asks for, by which it sees later that it asks for something else; empty
	// for the server's own. At most 128 letters and digits.
	SpecHash string `json:"specHash,omitempty"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Port publishes a TCP port of the guest under a port of the host. Both are 1 to 65535.
type Port struct {
	Host  uint16 `json:"host"`
	Guest uint16 `json:"guest"`
}

// Mount is a directory of the host.
type Mount struct {
	Tag      string `json:"tag,omitempty"`
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readonly,omitempty"`
}

// Policies of Restart.
const (
	RestartNever         = "never"
	RestartAlways        = "always"
	RestartOnFailure     = "on-failure"
	RestartUnlessStopped = "unless-stopped"
)

// Restart is what happens when a machine ends by itself.
type Restart struct {
	// Policy is one of the policies.
	Policy string `json:"policy"`
	// MaxRetries is how often the machine is started again; 0 for no limit.
	MaxRetries int `json:"maxRetries,omitempty"`
}

// Owner is the object that a machine belongs to.
type Owner struct {
	// Cluster is the UID of the cluster: that of its namespace kube-system.
	Cluster string `json:"cluster,omitempty"`
	// Namespace, Name and UID are the object's.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Machine is a machine as the server knows it.
type Machine struct {
	Name      string  `json:"name"`
	State     State   `json:"state"`
	CPUs      int     `json:"cpus"`
	MemoryMB  int64   `json:"memoryMb"`
	PID       int     `json:"pid,omitempty"`
	Mounts    []Mount `json:"mounts"`
	Ports     []Port  `json:"ports"`
	Network   bool    `json:"network"`
	StorageGB int64   `json:"storageGb,omitempty"`
	OverlayGB int64   `json:"overlayGb,omitempty"`
	// CreatedAt is in seconds since 1970.
	CreatedAt    int64     `json:"createdAt"`
	AllowedCIDRs *[]string `json:"allowedCidrs,omitempty"`
	GPU          bool      `json:"gpu"`
	CUDA         bool      `json:"cuda"`
	Forkable     bool      `json:"forkable"`
	Forkpoint    bool      `json:"forkpointHeld"`

	// The following are additions.

	// Image or From are what the machine was made of. ImageDigest is what the image's tag meant at the first start, or the
	// SHA-256 of the file at the creation, as sha256: and hexadecimal digits.
	Image       string `json:"image,omitempty"`
	From        string `json:"from,omitempty"`
	ImageDigest string `json:"imageDigest,omitempty"`
	// SpecHash is that of CreateRequest, or the SHA-256 of what was asked for at creation and cannot be changed, as 64
	// hexadecimal digits.
	SpecHash string `json:"specHash,omitempty"`
	Owner    *Owner `json:"owner,omitempty"`
	// StartedAt is when the machine was started the last time, in seconds since 1970.
	StartedAt int64 `json:"startedAt,omitempty"`
	// Workload is what the image's process does: WorkloadNone, WorkloadRunning or WorkloadEnded. Empty: unknown.
	Workload string `json:"workload,omitempty"`
	// ExitCode is that of the image's process, once it has ended.
	ExitCode *int `json:"exitCode,omitempty"`
	// Accelerator is kvm or tcg while the machine runs.
	Accelerator string `json:"accelerator,omitempty"`
	// Message says in a sentence why the machine is in a state that was not asked for.
	Message string `json:"message,omitempty"`
}

// What the image's process does.
const (
	WorkloadNone    = "none"
	WorkloadRunning = "running"
	WorkloadEnded   = "ended"
)

// Machines is the answer to GET /api/v1/machines.
type Machines struct {
	Machines []Machine `json:"machines"`
}

// Deleted is the answer to DELETE /api/v1/machines/{name}.
type Deleted struct {
	Deleted string `json:"deleted"`
}

// ResizeRequest is the body of POST /api/v1/machines/{name}/resize: new sizes in GiB, of which one at least is set.
type ResizeRequest struct {
	StorageGB *int64 `json:"storageGb,omitempty"`
	OverlayGB *int64 `json:"overlayGb,omitempty"`
}

// StartRequest is the body of POST /api/v1/machines/{name}/start, which may be absent.
type StartRequest struct {
	// RegistryAuth is for pulling the image at this start only, and is not stored.
	RegistryAuth *RegistryAuth `json:"registryAuth,omitempty"`
}

// RegistryAuth are the user and password for the registry of an image.
type RegistryAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// ExecRequest is the body of POST /api/v1/machines/{name}/exec and …/exec/stream.
type ExecRequest struct {
	// Command is the program and its arguments.
	Command []string `json:"command"`
	Env     []EnvVar `json:"env,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	// TimeoutSecs is how long the command may run, in seconds. Nil: until the request ends.
	TimeoutSecs *int64 `json:"timeoutSecs,omitempty"`
	// Stdin is the command's input.
	Stdin string `json:"stdin,omitempty"`
	// Background returns at once, with "pid=<n>\n" as output.
	Background bool           `json:"background,omitempty"`
	Secrets    map[string]any `json:"secrets,omitempty"`
}

// ExecExit is the data of the event exit of …/exec/stream.
type ExecExit struct {
	ExitCode int `json:"exitCode"`
}

// StreamError is the data of the event error of …/exec/stream and …/logs: why a stream that had begun did not end well.
type StreamError struct {
	Message string `json:"message"`
	// Code is an addition.
	Code Code `json:"code,omitempty"`
}

// ExecResponse is the answer to POST /api/v1/machines/{name}/exec.
type ExecResponse struct {
	// ExitCode is the command's; 124 after a timeout, 126 if it cannot be executed, 127 if it is not found.
	ExitCode int `json:"exitCode"`
	// Stdout and Stderr have replacement characters where the output is not UTF-8.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// StdoutB64 and StderrB64 are the same, exactly.
	StdoutB64 []byte `json:"stdoutB64"`
	StderrB64 []byte `json:"stderrB64"`
}

// FileWritten is the answer to PUT /api/v1/machines/{name}/files/{path}.
type FileWritten struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Status is the answer to GET /readyz and POST /drain.
type Status struct {
	// Status is ready or drained.
	Status string `json:"status"`
}

// Health is the answer to GET /health.
type Health struct {
	Status   string `json:"status"`
	Version  string `json:"version"`
	Machines struct {
		Total   int `json:"total"`
		Running int `json:"running"`
	} `json:"machines"`
	UptimeSeconds int64 `json:"uptime_seconds"`

	// Backend and Accelerator are additions: qemu, and kvm or tcg.
	Backend     string `json:"backend,omitempty"`
	Accelerator string `json:"accelerator,omitempty"`
	// AcceleratorReason says why it is not kvm.
	AcceleratorReason string `json:"accelerator_reason,omitempty"`
	// Features are what this server can do beyond smolvm's, such as FeatureSurvivesRestart.
	Features []string `json:"features,omitempty"`
}

// FeatureSurvivesRestart says that machines keep running while the server is restarted, and while its pod is replaced.
const FeatureSurvivesRestart = "survives-restart"

// Capacity is the answer to GET /capacity.
type Capacity struct {
	AllocatedCPUs     int     `json:"allocated_cpus"`
	AllocatedMemoryMB int64   `json:"allocated_memory_mb"`
	UsedCPUs          float64 `json:"used_cpus"`
	UsedMemoryMB      int64   `json:"used_memory_mb"`
	UsedDiskGB        int64   `json:"used_disk_gb"`
	// BootID is that of the server's process.
	BootID string `json:"boot_id"`
}

// EgressEvents is the answer to GET /api/v1/machines/{name}/egress-events.
type EgressEvents struct {
	Events []EgressEvent `json:"events"`
}

// EgressEvent is a connection of the guest that was refused.
type EgressEvent struct {
	// Timestamp is in seconds since 1970.
	Timestamp int64 `json:"timestamp"`
	// Operation is connect or send.
	Operation string `json:"operation"`
	// Dest is the destination as address:port.
	Dest string `json:"dest"`
}
