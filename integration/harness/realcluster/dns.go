package realcluster

import (
	"context"
	"fmt"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// Domain is the domain of the cluster's names: <service>.<namespace>.svc.cluster.local.
const Domain = "cluster.local"

// administrators is the group with all permissions on the API server.
const administrators = "system:masters"

// startDNS starts CoreDNS beside the control plane, where it outlives every node. It only knows the names of the
// cluster.
func (c *Cluster) startDNS(ctx context.Context) error {
	began := time.Now()
	if err := c.plane.WriteKubeconfig(c.path("coredns.kubeconfig"), "coredns", administrators); err != nil {
		return err
	}
	values := struct{ DNS, Domain, Dir string }{siteAddress.String(), Domain, c.options.Dir}
	if err := writeConfig(c.path("Corefile"), "Corefile", values); err != nil {
		return fmt.Errorf("configuring coredns: %w", err)
	}
	p, err := process.Start(process.Command{
		Name: "coredns", Path: c.tool("coredns"), Args: []string{"-conf", c.path("Corefile")}, Dir: c.options.Dir, Enter: c.site.Enter,
	})
	if err != nil {
		return err
	}
	c.dns = p
	err = await(ctx, p, "coredns", func(ctx context.Context) error {
		return get(ctx, c.site.Dial, fmt.Sprintf("http://%s:8181/ready", siteAddress))
	})
	if err != nil {
		return err
	}
	c.say("coredns is ready after %.1fs", time.Since(began).Seconds())
	return nil
}
