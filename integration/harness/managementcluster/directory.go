package managementcluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// takeDirectory locks the state directory and stops what a former cluster may have left running in it.
func (c *Cluster) takeDirectory() error {
	lock, err := os.OpenFile(c.path("lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("locking the state directory: %w", err)
	}
	// The kernel releases the lock with the last descriptor, so a crash leaves no lock behind.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return fmt.Errorf("another management cluster runs in %s (%w): stop it or use another directory", c.Dir(), err)
	}
	c.lock = lock
	var errs []error
	for _, name := range startOrder {
		errs = append(errs, process.StopRecorded(c.path(string(name)+".pid"), time.Second))
	}
	return errors.Join(errs...)
}

// release unlocks the state directory.
func (c *Cluster) release(remove bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil {
		return nil
	}
	var errs []error
	if remove {
		errs = append(errs, os.RemoveAll(c.Dir()))
	}
	errs = append(errs, c.lock.Close())
	c.lock = nil
	return errors.Join(errs...)
}

// writeFiles writes the configuration of the components, most of which depends on the chosen ports.
func (c *Cluster) writeFiles() error {
	if err := c.authority.issueFiles(c.path("pki"), net.ParseIP(c.options.address())); err != nil {
		return fmt.Errorf("issuing certificates: %w", err)
	}
	admin, err := c.RESTConfigFor("admin", administrators)
	if err != nil {
		return err
	}
	c.admin = admin
	for name, groups := range map[string][]string{
		"admin":                          {administrators},
		"kwok":                           {administrators},
		"system:kube-controller-manager": nil,
		"system:kube-scheduler":          nil,
	} {
		if err := c.WriteKubeconfig(c.path(kubeconfigName(name)), name, groups...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.path("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	var optional []string
	if c.options.PodsEnd {
		optional = append(optional, "pod-ends")
	}
	return writeStages(c.path("kwok.yaml"), optional...)
}
