package smolvmruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// Health is how a runtime is, as GET /healthz answers.
type Health struct {
	OK           bool `json:"ok"`
	KVMAvailable bool `json:"kvmAvailable"`
	SocketReady  bool `json:"socketReady"`
	StateReady   bool `json:"stateReady"`
	// Message says what is missing.
	Message string `json:"message"`
}

// observation is what was seen of smolvm and the node.
type observation struct {
	// smolvm is its answer to /health, and silence why there is none.
	smolvm  api.Health
	silence string
	// state is why the state directory cannot be written to; empty if it can.
	state string
	// noKVM is why KVM does not work; empty if it does.
	noKVM string
	// emulates is set where machines run without KVM.
	emulates bool
}

// Parts of messages, as smolvm-operator has them.
const (
	healthy       = "runtime healthy"
	noSocket      = "smolvm socket unavailable"
	noState       = "state directory unavailable"
	noAccelerator = "KVM unavailable"
)

// health returns what every client may read: nothing that only administrators may see.
func (o *observation) health() Health {
	h := Health{KVMAvailable: o.noKVM == "" && o.silence == "", SocketReady: o.silence == "", StateReady: o.state == ""}
	h.OK = h.SocketReady && h.StateReady && (h.KVMAvailable || o.emulates)
	h.Message = o.message(false)
	return h
}

// message joins what is missing, with the causes or without.
func (o *observation) message(causes bool) string {
	var missing []string
	add := func(what, cause string, is bool) {
		switch {
		case !is:
		case causes && cause != "":
			missing = append(missing, fmt.Sprintf("%s (%s)", what, cause))
		default:
			missing = append(missing, what)
		}
	}
	add(noSocket, o.silence, o.silence != "")
	add(noState, o.state, o.state != "")
	// A silent smolvm has not said whether it emulates.
	add(noAccelerator, o.noKVM, o.noKVM != "" && !o.emulates && o.silence == "")
	if len(missing) == 0 && o.noKVM != "" {
		return healthy + "; machines are emulated, which is slow"
	}
	if len(missing) == 0 {
		return healthy
	}
	return strings.Join(missing, "; ")
}

// accelerator returns what runs the instructions of guests; empty if nothing does.
func (o *observation) accelerator() v1alpha1.Accelerator {
	switch {
	case o.silence != "":
		return ""
	case o.noKVM == "":
		return v1alpha1.AcceleratorKVM
	case o.emulates:
		return v1alpha1.AcceleratorTCG
	}
	return ""
}

const (
	// probeTime bounds a question to smolvm.
	probeTime = 8 * time.Second
	// maxCause bounds the length of a cause in messages, in bytes.
	maxCause  = 400
	kvmDevice = "/dev/kvm"
)

// prober checks smolvm and the node.
type prober struct {
	smolvm *api.Client
	state  string
	// emulation allows machines without KVM.
	emulation bool
	// device checks KVM for a smolvm that does not say whether it works.
	device func() error
	// reason says why smolvm does not run; empty if it does, or if that is not known.
	reason func() string
}

// observe asks smolvm and tries the state directory.
func (p *prober) observe(ctx context.Context) observation {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var o observation
	health, err := p.smolvm.Health(ctx)
	if err == nil && health.Status != "ok" {
		err = fmt.Errorf("smolvm says that it is %q", health.Status)
	}
	if err != nil {
		o.silence = cause(p.reason(), err)
	} else {
		o.smolvm = health
		o.noKVM, o.emulates = p.accelerator(health)
	}
	if err := tryWriting(p.state); err != nil {
		o.state = cause("", err)
	}
	return o
}

// accelerator returns why KVM does not work, and whether machines run nevertheless.
func (p *prober) accelerator(h api.Health) (noKVM string, emulates bool) {
	switch v1alpha1.Accelerator(h.Accelerator) {
	case v1alpha1.AcceleratorKVM:
		return "", false
	case v1alpha1.AcceleratorTCG:
		return cause(h.AcceleratorReason, errors.New("smolvm emulates")), p.emulation
	}
	// smolvm itself does not say, and cannot run a machine without KVM.
	if err := p.device(); err != nil {
		return cause("", err), false
	}
	return "", false
}

// cause returns the words for a condition.
func cause(known string, err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("smolvm does not answer")
	}
	if known == "" {
		known = err.Error()
	}
	return strings.ToValidUTF8(known[:min(len(known), maxCause)], "")
}

// tryWriting makes a file in a directory and removes it. Its error has no random name.
func tryWriting(directory string) error {
	file, err := os.CreateTemp(directory, ".smolvm-write-check-*")
	if err == nil {
		_, err = file.Write([]byte{'x'})
		err = errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	var detail *os.PathError
	if errors.As(err, &detail) {
		return fmt.Errorf("writing to %s: %w", directory, detail.Err)
	}
	return err
}

// openKVM opens the device of KVM, as a hypervisor does.
func openKVM() error {
	found, err := os.Stat(kvmDevice)
	if err != nil {
		return err
	}
	if found.Mode().Type() != os.ModeDevice|os.ModeCharDevice {
		return errors.New(kvmDevice + " is no character device")
	}
	device, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return device.Close()
}
