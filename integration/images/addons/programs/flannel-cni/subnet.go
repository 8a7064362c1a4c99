package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// subnet is the content of flanneld's file.
type subnet struct {
	// networks are those of all pods, subnets those of this host.
	networks, subnets []netip.Prefix
	// mtu is the MTU of pods in bytes.
	mtu int
	// masqueraded reports that flanneld does the masquerading.
	masqueraded bool
}

func readSubnet(path string) (subnet, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return subnet{}, fmt.Errorf("flanneld has not written its subnet yet: %w", err)
	}
	s, err := parseSubnet(string(content))
	if err != nil {
		return subnet{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func parseSubnet(content string) (subnet, error) {
	var s subnet
	values := map[string]string{}
	for line := range strings.Lines(content) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	var err error
	if s.networks, err = prefixes(values, "FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK"); err != nil {
		return s, err
	}
	if s.subnets, err = prefixes(values, "FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"); err != nil {
		return s, err
	}
	if s.mtu, err = strconv.Atoi(values["FLANNEL_MTU"]); err != nil {
		return s, fmt.Errorf("FLANNEL_MTU: %w", err)
	}
	if s.masqueraded, err = strconv.ParseBool(values["FLANNEL_IPMASQ"]); err != nil {
		return s, fmt.Errorf("FLANNEL_IPMASQ: %w", err)
	}
	return s, nil
}

// prefixes returns the networks of these names. At least one of them must be set.
func prefixes(values map[string]string, names ...string) ([]netip.Prefix, error) {
	var found []netip.Prefix
	for _, name := range names {
		// Several pod networks are separated by commas.
		for value := range strings.SplitSeq(values[name], ",") {
			if value == "" {
				continue
			}
			prefix, err := netip.ParsePrefix(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found = append(found, prefix.Masked())
		}
	}
	if len(found) == 0 {
		return nil, errors.New(strings.Join(names, " and ") + " are missing")
	}
	return found, nil
}
