// Command flannel-cni is the CNI plugin flannel. It calls another plugin, by default bridge, with the subnet that
// flanneld got for this host. It is the project's own implementation because the module of flannel's plugin is not
// available.
//
// https://www.cni.dev/plugins/current/meta/flannel/
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// errNotAvailable is the specification's code for a plugin that cannot serve ADD requests now.
const errNotAvailable = 50

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: check, Del: remove, Status: status}, version.All, "CNI plugin flannel of kvm-operator")
}

// add stores the configuration that it passes on because flanneld may have another subnet at the time of the removal.
func add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	s, err := readSubnet(c.SubnetFile)
	if err != nil {
		return err
	}
	delegated, err := c.delegated(s)
	if err != nil {
		return err
	}
	config, err := json.Marshal(delegated)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(kept(c, args), config, 0o600); err != nil {
		return fmt.Errorf("keeping what is passed on for container %s: %w", args.ContainerID, err)
	}
	result, err := invoke.DelegateAdd(context.Background(), pluginOf(delegated), config, nil)
	if err != nil {
		return fmt.Errorf("plugin %s: %w", pluginOf(delegated), err)
	}
	return result.Print()
}

// remove does nothing for a container that was not added or has been removed, because the runtime may call it several
// times.
func remove(args *skel.CmdArgs) error {
	c, delegated, err := readKept(args)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	config, err := json.Marshal(delegated)
	if err != nil {
		return err
	}
	if err := invoke.DelegateDel(context.Background(), pluginOf(delegated), config, nil); err != nil {
		return fmt.Errorf("plugin %s: %w", pluginOf(delegated), err)
	}
	return os.Remove(kept(c, args))
}

func check(args *skel.CmdArgs) error {
	c, delegated, err := readKept(args)
	if err != nil {
		return fmt.Errorf("container %s was not added by this plugin: %w", args.ContainerID, err)
	}
	delegated["prevResult"] = c.PrevResult
	config, err := json.Marshal(delegated)
	if err != nil {
		return err
	}
	return invoke.DelegateCheck(context.Background(), pluginOf(delegated), config, nil)
}

// status returns an error until flanneld has written its file.
func status(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if _, err := readSubnet(c.SubnetFile); err != nil {
		return types.NewError(errNotAvailable, "flanneld is not ready", err.Error())
	}
	return nil
}

// kept returns the path of a container's file.
func kept(c configuration, args *skel.CmdArgs) string {
	return filepath.Join(c.DataDir, args.ContainerID)
}

func readKept(args *skel.CmdArgs) (configuration, map[string]any, error) {
	c, err := parse(args.StdinData)
	if err != nil {
		return c, nil, err
	}
	content, err := os.ReadFile(kept(c, args))
	if err != nil {
		return c, nil, err
	}
	var delegated map[string]any
	return c, delegated, json.Unmarshal(content, &delegated)
}
